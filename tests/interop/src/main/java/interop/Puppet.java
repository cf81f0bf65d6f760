package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;

/**
 * A Redisson client that tests control by the protocol of the package {@code puppet}.
 *
 * <pre>
 * Puppet URL [lease_ms=N] [sharded=auto|on|off] [boot_offset_ns=N]
 * </pre>
 *
 * URL is redis://HOST:PORT or redis-cluster://HOST:PORT,…; or redlock=URL,URL,URL, with which lock, try and count
 * without kind= take a RedissonRedLock over all of these servers. boot_offset_ns is what CLOCK_BOOTTIME is ahead of
 * CLOCK_MONOTONIC, which Java reads: 0 unless the machine was suspended.
 *
 * <p>Here are: lock, try, unlock, force, query, count, latch, available, shutdown, crash. Not here: what Redisson does not have. Where
 * the other puppet has an Owner there is a thread: one for each owner=, and one for each lock command without. More
 * than there: {@code kind=plain|fair|read|write|permit|multi} of lock, try and count, with {@code of=} the number of
 * permits, and NAME,NAME… for a multi-lock. {@code error} has the kinds bad_command, no_such_lock, not_granted, {@code lost} (unlocked by who does not hold it) and unavailable (all else).
 */
public final class Puppet {
    /** A lock command that takes longer says `waiting`. */
    private static final long SAY_WAITING_MS = 20;

    private final Client client;
    private final Events events;
    private final Map<String, Worker> owners = new ConcurrentHashMap<>();
    private final Map<String, Held> locks = new ConcurrentHashMap<>();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(Worker::daemon);
    private final AtomicInteger anonymous = new AtomicInteger();

    /** A lock command that waits or holds. */
    private static final class Held {
        final String name;
        final Lockable lock;
        final Worker worker;
        volatile boolean granted;

        Held(String name, Lockable lock, Worker worker) {
            this.name = name;
            this.lock = lock;
            this.worker = worker;
        }
    }

    private Puppet(Client client, Events events) {
        this.client = client;
        this.events = events;
    }

    public static void main(String[] args) throws IOException {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Events events = new Events();
        Client client;
        try {
            client = Client.connect(Arrays.asList(args), events);
        } catch (Exception | LinkageError error) {
            events.failed(null, error);
            System.exit(1);
            return;
        }
        events.emit(null, "ready", "uuid", client.id(), "pid", ProcessHandle.current().pid(),
            "redisson", Client.version());
        new Puppet(client, events).run();
        System.exit(0);
    }

    private void run() throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            Words words = new Words(line);
            String id = words.next();
            if (id == null) {
                continue;
            }
            try {
                command(id, words);
            } catch (Exception error) {
                events.failed(id, error);
            }
        }
        client.shutdown();
    }

    private void command(String id, Words words) throws Exception {
        String verb = words.required("the verb");
        switch (verb) {
            case "lock", "try" -> lock(id, verb, words);
            case "unlock" -> unlock(id, words);
            case "force" -> force(id, words);
            case "query" -> query(id, words);
            case "count" -> count(id, words);
            case "latch" -> latch(id, words);
            case "available" -> available(id, words);
            case "shutdown" -> {
                client.shutdown();
                events.emit(id, "info");
            }
            case "crash" -> new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start();
            default -> throw new Failure("bad_command", "no such verb: " + verb);
        }
    }

    private void lock(String id, String verb, Words words) throws Failure {
        String name = words.name();
        Map<String, String> options = words.options(List.of("owner", "lease_ms", "wait_ms", "kind", "of"));
        Held held = new Held(name, client.lockable(name, options), worker(options.get("owner")));
        if (locks.putIfAbsent(id, held) != null) {
            throw new Failure("bad_command", "id " + id + " is in use by a lock command");
        }
        long lease = options.containsKey("lease_ms") ? Words.number(options.get("lease_ms")) : -1;
        Long wait = options.containsKey("wait_ms") ? Long.valueOf(Words.number(options.get("wait_ms"))) : null;
        if (verb.equals("try") && wait == null) {
            wait = 0L;
        }
        Long limit = wait;
        held.worker.submit(() -> acquire(id, held, limit, lease));
    }

    private void acquire(String id, Held held, Long wait, long lease) {
        var ended = new boolean[1];
        timer.schedule(() -> {
            synchronized (ended) {
                if (!ended[0]) {
                    events.emit(id, "waiting", "name", held.name);
                }
            }
        }, SAY_WAITING_MS, TimeUnit.MILLISECONDS);
        boolean granted = false;
        Exception failure = null;
        try {
            granted = acquire(held.lock, wait, lease);
        } catch (Exception error) {
            failure = error;
        }
        long now = events.bootNs();
        synchronized (ended) {
            ended[0] = true;
        }
        if (granted) {
            held.granted = true;
            String holder = client.id() + ":" + Thread.currentThread().getId();
            events.emitAt(now, id, "granted", "name", held.name, "holder", holder,
                "count", held.lock.count());
            return;
        }
        locks.remove(id);
        if (failure == null) {
            events.emitAt(now, id, "denied", "name", held.name);
        } else {
            events.failed(id, failure);
        }
    }

    private static boolean acquire(Lockable lock, Long wait, long lease) throws InterruptedException {
        if (wait != null) {
            return lock.tryAcquire(wait, lease);
        }
        lock.acquire(lease);
        return true;
    }

    private void unlock(String id, Words words) throws Failure {
        String command = words.required("the id of a lock command");
        words.end();
        Held held = locks.get(command);
        if (held == null) {
            throw new Failure("no_such_lock", "no lock command " + command + " waits or holds");
        }
        if (!held.granted) {
            throw new Failure("not_granted", "the lock is not granted yet");
        }
        locks.remove(command);
        held.worker.submit(() -> {
            events.emit(id, "releasing", "lock", command, "name", held.name);
            try {
                held.lock.release();
                events.emit(id, "unlocked", "lock", command);
            } catch (Exception error) {
                events.failed(id, error);
            }
        });
    }

    private void force(String id, Words words) throws Failure {
        String name = words.name();
        words.end();
        worker(null).submit(() -> {
            try {
                events.emit(id, "info", "forced", client.force(name));
            } catch (Exception error) {
                events.failed(id, error);
            }
        });
    }

    private void query(String id, Words words) throws Failure {
        String name = words.name();
        String owner = words.options(List.of("owner")).get("owner");
        RLock lock = client.lock(name, "plain");
        worker(owner).submit(() -> {
            try {
                long left = client.remaining(name);
                events.emit(id, "info", "locked", lock.isLocked(), "remaining_ms", left < 0 ? null : left,
                    "held", lock.isHeldByCurrentThread(), "hold_count", lock.getHoldCount());
            } catch (Exception error) {
                events.failed(id, error);
            }
        });
    }

    private void count(String id, Words words) throws Failure {
        String name = words.name();
        long until = Words.number(words.required("the number"));
        String file = words.required("the file");
        Map<String, String> options = words.options(List.of("work_us", "pause_us", "kind", "of"));
        long work = Words.number(options.getOrDefault("work_us", "0"));
        long pause = Words.number(options.getOrDefault("pause_us", "0"));
        Count count = new Count(events, file, until, work, pause);
        boolean reads = "read".equals(options.get("kind"));
        Lockable lock = client.lockable(name, options);
        worker(null).submit(() -> {
            try {
                count.run(id, lock, reads);
            } catch (Exception error) {
                events.failed(id, error);
            }
        });
    }

    private void latch(String id, Words words) throws Failure {
        RCountDownLatch latch = client.latch(words.name());
        String verb = words.required("set, down, wait or count");
        long count = verb.equals("set") ? Words.number(words.required("the count")) : 0;
        words.end();
        worker(null).submit(() -> {
            try {
                Boolean set = null;
                switch (verb) {
                    case "set" -> set = latch.trySetCount(count);
                    case "down" -> latch.countDown();
                    case "wait" -> latch.await();
                    case "count" -> { }
                    default -> throw new Failure("bad_command", "a latch cannot " + verb);
                }
                events.emit(id, "info", "count", latch.getCount(), "set", set);
            } catch (Exception error) {
                events.failed(id, error);
            }
        });
    }

    private void available(String id, Words words) throws Failure {
        String name = words.name();
        words.end();
        worker(null).submit(() -> {
            try {
                events.emit(id, "info", "available", client.available(name));
            } catch (Exception error) {
                events.failed(id, error);
            }
        });
    }

    private Worker worker(String owner) {
        if (owner == null) {
            return new Worker("command-" + anonymous.incrementAndGet());
        }
        return owners.computeIfAbsent(owner, Worker::new);
    }
}
