package worldengine.client;

import org.jspecify.annotations.Nullable;

/**
 * No answer came in time, or an invalid one. The request may have been carried out. A handoff may be sent
 * again unchanged, since the server accepts its key at most once.
 */
public final class UnavailableException extends EngineException {
    private static final long serialVersionUID = 1;

    /** No answer came until the deadline. */
    public static final String TIMEOUT = "TIMEOUT";
    /** No server answers for this world. */
    public static final String NO_RESPONDERS = "NO_RESPONDERS";
    /** There is no connection, and this one makes none any more. */
    public static final String CONNECTION = "CONNECTION";
    /** The user may not ask this, or not read the answer. */
    public static final String PERMISSION_DENIED = "PERMISSION_DENIED";
    /** The caller gave up: by an interrupt, a cancelled future, or close. */
    public static final String ABORTED = "ABORTED";
    /** The handoff waits for the end of a pause of its town. */
    public static final String TOWN_PAUSED = "TOWN_PAUSED";
    /** The handoff waits for the end of a pause of the world. */
    public static final String WORLD_PAUSED = "WORLD_PAUSED";
    /** The handoff waits for a game that is away. */
    public static final String PLUGIN_ABSENT = "PLUGIN_ABSENT";
    /** The answer is not what the contract says. */
    public static final String INVALID_ANSWER = "INVALID_ANSWER";

    UnavailableException(String code, String message, @Nullable Throwable cause) {
        super(code, message, cause);
    }

    UnavailableException(String code, String message) {
        this(code, message, null);
    }
}
