package worldengine.client;

import org.jspecify.annotations.Nullable;

/** A call did not get what it asked for. {@link #code} is for machines, the message for people. */
public abstract sealed class EngineException extends RuntimeException permits ReplyException, UnavailableException {
    private static final long serialVersionUID = 1;

    private final String code;

    EngineException(String code, String message, @Nullable Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /** The machine code, such as {@code UNKNOWN_TOWN} or {@code TIMEOUT}. */
    public String code() { return code; }
}
