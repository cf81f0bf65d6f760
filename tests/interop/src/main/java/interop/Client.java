package interop;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;

/** Redisson, by what all its versions from 3.0 on have; what came later, or looked different, is looked up. */
final class Client {
    /** What comes before the addresses of the servers of a RedissonRedLock. */
    private static final String SEVERAL = "redlock=";

    /** One for each server; all but a lock without kind are of the first. */
    private final List<RedissonClient> all;
    private final RedissonClient redisson;
    private final String id;

    private Client(List<RedissonClient> all) throws ReflectiveOperationException {
        this.all = all;
        this.redisson = all.get(0);
        this.id = idOf(redisson);
    }

    /** The client that the command line describes. */
    static Client connect(List<String> args, Events events) throws Exception {
        if (args.isEmpty()) {
            throw new Failure("bad_command", "usage: Puppet URL [lease_ms=…] [sharded=…] [boot_offset_ns=…]");
        }
        String first = args.get(0);
        List<RedissonClient> all = new ArrayList<>();
        for (String url : first.startsWith(SEVERAL) ? first.substring(SEVERAL.length()).split(",") : new String[] {first}) {
            all.add(Redisson.create(configured(url, args.subList(1, args.size()), events)));
        }
        return new Client(all);
    }

    private static Config configured(String url, List<String> settings, Events events) throws Exception {
        Config config = new Config();
        String sharded = "auto";
        for (String setting : settings) {
            String value = setting.substring(setting.indexOf('=') + 1);
            switch (setting.substring(0, Math.max(setting.indexOf('='), 0))) {
                case "lease_ms" -> set(config, "setLockWatchdogTimeout", Words.number(value));
                case "sharded" -> sharded = value;
                case "boot_offset_ns" -> events.bootOffset(Words.number(value));
                default -> throw new Failure("bad_command", "not a setting: " + setting);
            }
        }
        address(config, url, sharded);
        return config;
    }

    private static void address(Config config, String url, String sharded) throws Exception {
        String scheme = url.substring(0, url.indexOf("://"));
        String places = url.substring(url.indexOf("://") + 3);
        // The oldest want no scheme, all others one.
        String prefix = version().matches("3\\.[0-4]\\..*") ? "" : "redis://";
        if (scheme.equals("redis")) {
            config.useSingleServer().setAddress(prefix + places);
            return;
        }
        ClusterServersConfig cluster = config.useClusterServers();
        for (String place : places.split(",")) {
            cluster.addNodeAddress(prefix + place);
        }
        if (!sharded.equals("auto")) {
            sharding(cluster, sharded);
        }
    }

    /** ShardedSubscriptionMode: since 3.29. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void sharding(ClusterServersConfig cluster, String mode) throws Exception {
        for (Method method : cluster.getClass().getMethods()) {
            if (method.getName().equals("setShardedSubscriptionMode")) {
                Class type = method.getParameterTypes()[0];
                method.invoke(cluster, Enum.valueOf(type, mode.toUpperCase()));
                return;
            }
        }
        throw new Failure("bad_command", "this version of Redisson has no sharded=" + mode);
    }

    /** Since 3.2. */
    private static void set(Config config, String setter, long value) throws Exception {
        try {
            Config.class.getMethod(setter, long.class).invoke(config, value);
        } catch (NoSuchMethodException error) {
            throw new Failure("bad_command", "this version of Redisson has no " + setter);
        }
    }

    /** The first part of the field in a lock's hash. */
    private static String idOf(RedissonClient redisson) throws ReflectiveOperationException {
        try {
            return (String) RedissonClient.class.getMethod("getId").invoke(redisson);
        } catch (NoSuchMethodException error) {
            Object manager = field(redisson, "connectionManager");
            Object id = field(redisson, "id");
            return (id == null ? field(manager, "id") : id).toString();
        }
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        for (Class<?> type = of.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name) && (!name.equals("id") || field.getType() != UUID[].class)) {
                    field.setAccessible(true);
                    return field.get(of);
                }
            }
        }
        return null;
    }

    String id() {
        return id;
    }

    /** Of the jar that runs. */
    static String version() {
        String jar = Redisson.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return jar.replaceAll(".*redisson-|\\.jar$", "");
    }

    RLock lock(String name, String kind) throws Failure {
        return switch (kind) {
            case "plain" -> redisson.getLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            default -> throw new Failure("bad_command", "no such kind of lock: " + kind);
        };
    }

    /** Of lock, try and count. The number of permits is set if nobody has set it. */
    Lockable lockable(String name, Map<String, String> options) throws Failure {
        String kind = options.getOrDefault("kind", "plain");
        if (kind.equals("multi")) {
            RLock[] members = Arrays.stream(name.split(",")).map(redisson::getLock).toArray(RLock[]::new);
            return Lockable.of(joined("RedissonMultiLock", members), () -> members[0].getHoldCount());
        }
        if (all.size() > 1 && kind.equals("plain")) {
            return majority(name);
        }
        if (!kind.equals("permit")) {
            return Lockable.of(lock(name, kind));
        }
        RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
        if (options.containsKey("of")) {
            semaphore.trySetPermits((int) Words.number(options.get("of")));
        }
        return Lockable.of(semaphore);
    }

    private Lockable majority(String name) throws Failure {
        RLock[] members = all.stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
        RLock lock = joined("RedissonRedLock", members);
        return Lockable.of(lock, () -> (int) Arrays.stream(members).filter(RLock::isHeldByCurrentThread).count());
    }

    /** A lock of several. Before 3.2 its class was in another package. */
    private static RLock joined(String type, RLock[] members) throws Failure {
        try {
            return (RLock) Class.forName("org.redisson." + type).getConstructor(RLock[].class).newInstance((Object) members);
        } catch (ReflectiveOperationException error) {
            throw new Failure("bad_command", "this version of Redisson has no " + type);
        }
    }

    /** What Redisson says of a semaphore: how many permits are free. */
    int available(String name) {
        return redisson.getPermitExpirableSemaphore(name).availablePermits();
    }

    RCountDownLatch latch(String name) {
        return redisson.getCountDownLatch(name);
    }

    /** Whether somebody lost the lock by it. The oldest versions do not say. */
    boolean force(String name) throws Exception {
        RLock lock = redisson.getLock(name);
        boolean locked = lock.isLocked();
        Object forced = RLock.class.getMethod("forceUnlock").invoke(lock);
        return forced instanceof Boolean answer ? answer : locked;
    }

    /** RLock has it too, but not in every version. */
    long remaining(String name) {
        return redisson.getBucket(name).remainTimeToLive();
    }

    void shutdown() {
        for (RedissonClient each : all) {
            each.shutdown(0, 2, TimeUnit.SECONDS);
        }
    }
}
