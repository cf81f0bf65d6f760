package interop;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** Prints events, one JSON object a line. */
final class Events {
    /** Not System.out: libraries may print there. */
    private final FileOutputStream output = new FileOutputStream(FileDescriptor.out);
    private volatile long offsetNs;

    /** What CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC. */
    void bootOffset(long ns) {
        offsetNs = ns;
    }

    /** CLOCK_BOOTTIME: on Linux System.nanoTime() is CLOCK_MONOTONIC. */
    long bootNs() {
        return System.nanoTime() + offsetNs;
    }

    void emit(String id, String event, Object... fields) {
        emitAt(bootNs(), id, event, fields);
    }

    /** Fields are keys and values by turns: texts, numbers, booleans, null, lists. */
    void emitAt(long bootNs, String id, String event, Object... fields) {
        StringBuilder line = new StringBuilder("{\"id\":").append(json(id));
        line.append(",\"event\":").append(json(event)).append(",\"boot_ns\":").append(bootNs);
        for (int at = 0; at < fields.length; at += 2) {
            line.append(',').append(json(fields[at])).append(':').append(json(fields[at + 1]));
        }
        byte[] bytes = line.append("}\n").toString().getBytes(StandardCharsets.UTF_8);
        try {
            synchronized (output) {
                output.write(bytes);
            }
        } catch (IOException error) {
            // Nobody reads any more: the end of the input will end us.
        }
    }

    void failed(String id, Throwable error) {
        String kind = "unavailable";
        if (error instanceof Failure failure) {
            kind = failure.kind;
        } else if (error instanceof IllegalMonitorStateException) {
            kind = "lost";
        }
        emit(id, "error", "kind", kind, "message", String.valueOf(error.getMessage()), "class", error.getClass().getName());
    }

    private static String json(Object value) {
        if (value instanceof List<?> list) {
            StringBuilder text = new StringBuilder("[");
            for (Object item : list) {
                text.append(text.length() > 1 ? "," : "").append(json(item));
            }
            return text.append(']').toString();
        }
        if (value instanceof long[] numbers) {
            StringBuilder text = new StringBuilder("[");
            for (long number : numbers) {
                text.append(text.length() > 1 ? "," : "").append(number);
            }
            return text.append(']').toString();
        }
        return value instanceof String text ? quoted(text) : String.valueOf(value);
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char next : text.toCharArray()) {
            if (next == '"' || next == '\\') {
                quoted.append('\\').append(next);
            } else if (next < ' ') {
                quoted.append(String.format("\\u%04x", (int) next));
            } else {
                quoted.append(next);
            }
        }
        return quoted.append('"').toString();
    }
}
