package peers;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/** What one task takes and gives back. */
interface Handle {
    void acquire() throws InterruptedException;

    void release();

    /** Of a name, in the way that the command says; with several servers, a lock over all of them. */
    static Handle of(List<RedissonClient> servers, Command told, String name) {
        if (servers.size() == 1) {
            return of(servers.get(0), told, name);
        }
        RLock[] locks = servers.stream().map(server -> server.getLock(name)).toArray(RLock[]::new);
        return of(new RedissonRedLock(locks));
    }

    static Handle of(RedissonClient redisson, Command told, String name) {
        return switch (told.mode) {
            case "lock" -> of(redisson.getLock(name));
            case "fair" -> of(redisson.getFairLock(name));
            case "read" -> of(redisson.getReadWriteLock(name).readLock());
            case "write" -> of(redisson.getReadWriteLock(name).writeLock());
            case "permits" -> {
                RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
                semaphore.trySetPermits(told.of);
                yield of(semaphore, told.want);
            }
            case "multi" -> {
                List<RLock> all = new ArrayList<>();
                for (int number = 0; number < told.of; number++) {
                    all.add(redisson.getLock(name + ":" + number));
                }
                yield of(redisson, all, told.want);
            }
            default -> throw new IllegalArgumentException("no such mode: " + told.mode);
        };
    }

    private static Handle of(RLock lock) {
        return new Handle() {
            @Override
            public void acquire() {
                lock.lock();
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    /** So many of them at once, chosen anew each time. */
    private static Handle of(RedissonClient redisson, List<RLock> all, int want) {
        return new Handle() {
            private RLock held;

            @Override
            public void acquire() {
                Collections.shuffle(all);
                held = redisson.getMultiLock(all.subList(0, want).toArray(RLock[]::new));
                held.lock();
            }

            @Override
            public void release() {
                held.unlock();
            }
        };
    }

    private static Handle of(RPermitExpirableSemaphore semaphore, int want) {
        return new Handle() {
            private List<String> held;

            @Override
            public void acquire() throws InterruptedException {
                held = want == 1 ? List.of(semaphore.acquire()) : semaphore.acquire(want);
            }

            @Override
            public void release() {
                if (want == 1) {
                    semaphore.release(held.get(0));
                } else {
                    semaphore.release(held);
                }
            }
        };
    }
}
