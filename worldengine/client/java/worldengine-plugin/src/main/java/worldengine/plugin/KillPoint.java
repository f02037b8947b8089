package worldengine.plugin;

import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * The moments at which the end of a plugin's process is worth a test. The system property
 * {@code worldengine.plugin.killAt}, such as {@code begun:3}, ends the process when it reaches that point for the
 * third time. Without it a point does nothing.
 */
enum KillPoint {
    /** A request has arrived, and nothing is recorded. */
    ARRIVED,
    /** Half of the line that records a command as begun is written. */
    BEGINNING,
    /** A command is recorded as begun, and not applied. */
    BEGUN,
    /** It is applied, and its outcome is not recorded. */
    APPLIED,
    /** Half of the line with its outcome is written. */
    ENDING,
    /** Its outcome is recorded, and not answered. */
    DONE,
    /** It is answered. */
    ANSWERED;

    private static final String[] SET = System.getProperty("worldengine.plugin.killAt", "").split(":");
    private static final AtomicInteger LEFT = new AtomicInteger(SET.length > 1 ? Integer.parseInt(SET[1]) : 1);

    /** Ends the process if this is the point, after a last act. */
    void reached(@Nullable Runnable last) {
        if (!name().equalsIgnoreCase(SET[0]) || LEFT.decrementAndGet() != 0) return;
        if (last != null) last.run();
        Runtime.getRuntime().halt(137); // as by SIGKILL: no hook runs
    }

    void reached() { reached(null); }
}
