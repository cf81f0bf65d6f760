package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/**
 * Critical sections on a counter in a file, which nothing but the lock protects. With the lock of a reader, sections
 * in which the counter must not change.
 */
final class Count {
    private final Events events;
    private final Path file;
    private final long until;
    private final long workUs;
    private final long pauseUs;

    Count(Events events, String file, long until, long workUs, long pauseUs) {
        this.events = events;
        this.file = Path.of(file);
        this.until = until;
        this.workUs = workUs;
        this.pauseUs = pauseUs;
    }

    void run(String id, Lockable lock, boolean reads) throws IOException, InterruptedException {
        List<long[]> sections = new ArrayList<>();
        long longestNs = 0;
        long changed = 0;
        try (FileChannel counter = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            boolean more = true;
            while (more) {
                long called = events.bootNs();
                lock.acquire(-1);
                long granted = events.bootNs();
                try {
                    longestNs = Math.max(longestNs, granted - called);
                    long value = read(counter);
                    more = value < until;
                    if (more) {
                        LockSupport.parkNanos(workUs * 1_000);
                        if (reads) {
                            changed += read(counter) == value ? 0 : 1;
                        } else {
                            write(counter, value + 1);
                        }
                        sections.add(new long[] {value, granted, events.bootNs()});
                    }
                } finally {
                    lock.release();
                }
                if (pauseUs > 0) {
                    LockSupport.parkNanos(pauseUs * 1_000);
                }
            }
        }
        events.emit(id, "info", "done", sections.size(), "longest_wait_us", longestNs / 1_000,
            "changed", changed, "sections", sections);
    }

    private static long read(FileChannel counter) throws IOException {
        ByteBuffer text = ByteBuffer.allocate(32);
        counter.read(text, 0);
        return Long.parseLong(new String(text.array(), 0, text.position(), StandardCharsets.US_ASCII).trim());
    }

    private static void write(FileChannel counter, long value) throws IOException {
        byte[] text = String.format("%020d\n", value).getBytes(StandardCharsets.US_ASCII);
        counter.write(ByteBuffer.wrap(text), 0);
    }
}
