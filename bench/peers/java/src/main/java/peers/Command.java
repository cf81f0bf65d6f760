package peers;

import com.google.gson.annotations.SerializedName;

/** What a worker is told to do. */
final class Command {
    @SerializedName("do")
    final String load;
    final String name;
    final int count;
    int tasks;
    boolean distinct;
    /** Whether a crowd tells each wait. */
    boolean each;
    @SerializedName("us")
    long micros;
    @SerializedName("hold_us")
    long hold;
    @SerializedName("pause_us")
    long pause;

    Command(String load, String name, int count) {
        this.load = load;
        this.name = name;
        this.count = count;
    }
}
