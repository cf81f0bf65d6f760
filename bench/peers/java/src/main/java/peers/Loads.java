package peers;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RedissonClient;

/** The loads of bench/src. All stamps are of the machine's monotonic clock, which System.nanoTime reads. */
final class Loads {
    /** One, or those of several servers. */
    private final List<RedissonClient> redisson;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<Handle> held = new ArrayList<>();

    Loads(List<RedissonClient> redisson) {
        this.redisson = redisson;
    }

    /** One task, one name, nobody else. */
    Map<String, ?> pairs(Command told) throws InterruptedException {
        Handle lock = Handle.of(redisson, told, told.name);
        long[] times = new long[told.count];
        for (int at = 0; at < times.length; at++) {
            long start = System.nanoTime();
            lock.acquire();
            lock.release();
            times[at] = System.nanoTime() - start;
        }
        return Map.of("ns", times);
    }

    /** Several processes take turns on one name: asked, granted, released. */
    Map<String, ?> turns(Command told) throws InterruptedException {
        Handle lock = Handle.of(redisson, told, told.name);
        long[][] turns = new long[told.count][];
        for (int at = 0; at < turns.length; at++) {
            long asked = System.nanoTime();
            lock.acquire();
            long granted = System.nanoTime();
            TimeUnit.MICROSECONDS.sleep(told.hold);
            turns[at] = new long[] {asked, granted, System.nanoTime()};
            lock.release();
            TimeUnit.MICROSECONDS.sleep(told.pause);
        }
        return Map.of("turns", turns);
    }

    /** Many tasks at once, on one name or each on its own. Each locks, keeps and unlocks until time is up. */
    Map<String, ?> crowd(Command told) throws Exception {
        CountDownLatch ready = new CountDownLatch(told.tasks);
        CountDownLatch start = new CountDownLatch(1);
        List<Callable<List<long[]>>> tasks = new ArrayList<>();
        for (int task = 0; task < told.tasks; task++) {
            Handle lock = Handle.of(redisson, told, told.distinct ? told.name + ":" + task : told.name);
            tasks.add(() -> {
                ready.countDown();
                start.await();
                return work(lock, told);
            });
        }
        List<Future<List<long[]>>> running = tasks.stream().map(threads::submit).toList();
        ready.await();
        long begin = System.nanoTime();
        start.countDown();
        List<List<long[]>> turns = all(running);
        return summary(turns, System.nanoTime() - begin, told.each);
    }

    /** When it asked, was granted and gave it up, each time. */
    private static List<long[]> work(Handle lock, Command told) throws InterruptedException {
        List<long[]> turns = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.MICROSECONDS.toNanos(told.micros);
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            lock.acquire();
            long granted = System.nanoTime();
            pass(told.hold);
            turns.add(new long[] {asked, granted, System.nanoTime()});
            lock.release();
            pass(told.pause);
        }
        return turns;
    }

    private static void pass(long micros) throws InterruptedException {
        if (micros > 0) {
            TimeUnit.MICROSECONDS.sleep(micros);
        }
    }

    private static Map<String, ?> summary(List<List<long[]>> tasks, long took, boolean each) {
        long[] all = tasks.stream().flatMap(List::stream).mapToLong(turn -> turn[1] - turn[0]).sorted().toArray();
        Map<String, Object> answer = new HashMap<>();
        answer.put("grants", all.length);
        answer.put("ns", took);
        answer.put("mean", Arrays.stream(all).sum() / Math.max(all.length, 1));
        for (var share : Map.of("p50", 50, "p95", 95, "p99", 99, "max", 100).entrySet()) {
            answer.put(share.getKey(), all.length == 0 ? 0 : all[(all.length - 1) * share.getValue() / 100]);
        }
        answer.put("least", tasks.stream().mapToInt(List::size).min().orElse(0));
        answer.put("most", tasks.stream().mapToInt(List::size).max().orElse(0));
        if (each) {
            answer.put("turns", tasks.stream().flatMap(List::stream).toList());
        }
        return answer;
    }

    /** Tasks that wait for one name; each gets it once. */
    Map<String, ?> queue(Command told) throws Exception {
        Handle lock = Handle.of(redisson, told, told.name);
        long begin = System.nanoTime();
        List<Future<?>> waiting = new ArrayList<>();
        for (int task = 0; task < told.tasks; task++) {
            waiting.add(threads.submit(() -> {
                lock.acquire();
                lock.release();
                return null;
            }));
        }
        for (Future<?> task : waiting) {
            task.get();
        }
        return Map.of("begin", begin, "end", System.nanoTime());
    }

    /** Taken and released by this thread, who is their owner. */
    Map<String, ?> hold(Command told) throws InterruptedException {
        long begin = System.nanoTime();
        for (int number = 0; number < told.count; number++) {
            Handle lock = Handle.of(redisson, told, told.name + ":" + number);
            lock.acquire();
            held.add(lock);
        }
        return Map.of("begin", begin, "end", System.nanoTime(), "held", held.size());
    }

    Map<String, ?> release() {
        long begin = System.nanoTime();
        held.forEach(Handle::release);
        held.clear();
        return Map.of("begin", begin, "end", System.nanoTime());
    }

    private static <T> List<T> all(List<Future<T>> running) throws Exception {
        List<T> done = new ArrayList<>();
        for (Future<T> task : running) {
            done.add(task.get());
        }
        return done;
    }
}
