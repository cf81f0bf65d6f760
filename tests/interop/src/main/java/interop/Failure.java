package interop;

/** What an `error` event says. */
final class Failure extends Exception {
    private static final long serialVersionUID = 1;

    final String kind;

    Failure(String kind, String message) {
        super(message);
        this.kind = kind;
    }
}
