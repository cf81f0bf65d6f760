package peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.google.gson.Gson;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson at its defaults, as a worker process of {@code cargo xtask bench}.
 *
 * <pre>
 * Peers redisson URL THREADS
 * </pre>
 *
 * URL may be several with commas between them. It is told what to do as bench/src/serve.rs is: a line of JSON each on
 * standard input, answered by one on standard output. A task is a thread; THREADS, what others' runtimes have, is not
 * looked at.
 */
public final class Peers {
    /** Pairs that are not measured, for the compiler's sake. */
    private static final int WARM_UP = 2_000;

    private Peers() {
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        List<RedissonClient> servers = new ArrayList<>();
        for (String url : args[1].split(",")) {
            Config config = new Config();
            config.useSingleServer().setAddress(url);
            servers.add(Redisson.create(config));
        }
        Loads loads = new Loads(servers);
        loads.pairs(new Command("pairs", "warm-up:" + ProcessHandle.current().pid(), WARM_UP));
        try {
            serve(loads);
        } catch (Throwable error) {
            // A lock that cannot be had is no measurement.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(Loads loads) throws Exception {
        Gson gson = new Gson();
        say(gson, Map.of("ready", true));
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            say(gson, load(loads, gson.fromJson(line, Command.class)));
        }
    }

    private static void say(Gson gson, Map<String, ?> answer) throws IOException {
        System.out.println(gson.toJson(answer));
        System.out.flush();
    }

    private static Map<String, ?> load(Loads loads, Command told) throws Exception {
        return switch (told.load) {
            case "pairs" -> loads.pairs(told);
            case "turns" -> loads.turns(told);
            case "crowd" -> loads.crowd(told);
            case "queue" -> loads.queue(told);
            case "hold" -> loads.hold(told);
            case "release" -> loads.release();
            default -> Map.of("error", "no such load: " + told.load);
        };
    }
}
