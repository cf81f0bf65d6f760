package interop;

import java.util.concurrent.TimeUnit;
import java.util.function.IntSupplier;

import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;

/** What a lock command acquires: a lock, or a permit. Leases of -1 are those of the client. */
interface Lockable {
    void acquire(long leaseMs) throws InterruptedException;

    boolean tryAcquire(long waitMs, long leaseMs) throws InterruptedException;

    void release();

    int count();

    static Lockable of(RLock lock) {
        return of(lock, lock::getHoldCount);
    }

    /** A multi-lock does not say its hold count. */
    static Lockable of(RLock lock, IntSupplier count) {
        return new Lockable() {
            @Override
            public void acquire(long leaseMs) {
                if (leaseMs < 0) {
                    lock.lock();
                } else {
                    lock.lock(leaseMs, TimeUnit.MILLISECONDS);
                }
            }

            @Override
            public boolean tryAcquire(long waitMs, long leaseMs) throws InterruptedException {
                if (waitMs == 0 && leaseMs < 0) {
                    return lock.tryLock();
                }
                return lock.tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS);
            }

            @Override
            public void release() {
                lock.unlock();
            }

            @Override
            public int count() {
                return count.getAsInt();
            }
        };
    }

    /** One permit. A permit without a lease never ends by itself: nobody renews it. */
    static Lockable of(RPermitExpirableSemaphore semaphore) {
        return new Lockable() {
            private volatile String id;

            @Override
            public void acquire(long leaseMs) throws InterruptedException {
                id = leaseMs < 0 ? semaphore.acquire() : semaphore.acquire(leaseMs, TimeUnit.MILLISECONDS);
            }

            @Override
            public boolean tryAcquire(long waitMs, long leaseMs) throws InterruptedException {
                id = leaseMs < 0
                    ? semaphore.tryAcquire(waitMs, TimeUnit.MILLISECONDS)
                    : semaphore.tryAcquire(waitMs, leaseMs, TimeUnit.MILLISECONDS);
                return id != null;
            }

            @Override
            public void release() {
                semaphore.release(id);
            }

            @Override
            public int count() {
                return 1;
            }
        };
    }
}
