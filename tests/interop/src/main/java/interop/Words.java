package interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The words of a line, read from the left. */
final class Words {
    private String rest;

    Words(String line) {
        rest = line;
    }

    String next() {
        rest = rest.stripLeading();
        int end = 0;
        while (end < rest.length() && !Character.isWhitespace(rest.charAt(end))) {
            end++;
        }
        String word = rest.substring(0, end);
        rest = rest.substring(end);
        return word.isEmpty() ? null : word;
    }

    String required(String what) throws Failure {
        String word = next();
        if (word == null) {
            throw new Failure("bad_command", what + " is missing");
        }
        return word;
    }

    /** A bare word or a JSON string. */
    String name() throws Failure {
        rest = rest.stripLeading();
        if (!rest.startsWith("\"")) {
            return required("the lock name");
        }
        StringBuilder name = new StringBuilder();
        for (int at = 1; at < rest.length(); at++) {
            char next = rest.charAt(at);
            if (next == '"') {
                rest = rest.substring(at + 1);
                return name.toString();
            }
            if (next == '\\' && at + 1 < rest.length()) {
                at++;
                next = rest.charAt(at);
                if (next == 'u' && at + 4 < rest.length()) {
                    next = (char) Integer.parseInt(rest.substring(at + 1, at + 5), 16);
                    at += 4;
                } else if ("\"\\/".indexOf(next) < 0) {
                    throw new Failure("bad_command", "a lock name has no control characters");
                }
            }
            name.append(next);
        }
        throw new Failure("bad_command", "the lock name is not a JSON string");
    }

    void end() throws Failure {
        String word = next();
        if (word != null) {
            throw new Failure("bad_command", "too many arguments: " + word);
        }
    }

    /** The key=value words up to the end of the line. */
    Map<String, String> options(List<String> known) throws Failure {
        Map<String, String> options = new HashMap<>();
        for (String word = next(); word != null; word = next()) {
            int at = word.indexOf('=');
            if (at < 0 || !known.contains(word.substring(0, at))) {
                throw new Failure("bad_command", "not an option here: " + word);
            }
            options.put(word.substring(0, at), word.substring(at + 1));
        }
        return options;
    }

    static long number(String word) throws Failure {
        try {
            long number = Long.parseLong(word);
            if (number >= 0) {
                return number;
            }
        } catch (NumberFormatException error) {
            // Said below.
        }
        throw new Failure("bad_command", "not a number: " + word);
    }
}
