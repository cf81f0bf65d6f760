package interop;

import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** An owner: Redisson knows threads. What it is given it does in order. */
final class Worker {
    private final ThreadPoolExecutor thread;

    Worker(String name) {
        thread = new ThreadPoolExecutor(1, 1, 1, TimeUnit.HOURS, new LinkedBlockingQueue<>(), task -> {
            Thread made = daemon(task);
            made.setName(name);
            return made;
        });
    }

    void submit(Runnable task) {
        thread.execute(task);
    }

    static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }
}
