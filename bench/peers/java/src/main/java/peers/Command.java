package peers;

import com.google.gson.annotations.SerializedName;

/** What a worker is told to do. */
final class Command {
    @SerializedName("do")
    final String load;
    final String name;
    final int count;
    int tasks;
    /** How the name is taken: as a lock if this is not said. */
    String mode = "lock";
    /** Of the permits that there are, how many are wanted at once. */
    int want = 1;
    int of = 1;
    boolean distinct;
    /** Whether a crowd tells when somebody asked, was granted, and gave it up, each time. */
    boolean each;
    @SerializedName("us")
    long micros;
    @SerializedName("hold_us")
    long hold;
    @SerializedName("pause_us")
    long pause;

    /** For Gson, which leaves what a command does not say. */
    @SuppressWarnings("unused")
    private Command() {
        this("", "", 0);
    }

    Command(String load, String name, int count) {
        this.load = load;
        this.name = name;
        this.count = count;
    }
}
