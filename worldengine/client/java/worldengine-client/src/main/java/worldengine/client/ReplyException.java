package worldengine.client;

import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The server refused the request ({@code status} 4xx), or has a problem (5xx). The codes are those of
 * {@link worldengine.client.contract.ErrorCode}.
 */
public final class ReplyException extends EngineException {
    private static final long serialVersionUID = 1;

    /** A place in the request, a JSON Pointer, and its defect. */
    public record Violation(String path, String message) implements java.io.Serializable {}

    private final int status;
    private final List<Violation> details;
    private final Duration retryAfter;
    private final @Nullable String runId;

    ReplyException(int status, String code, String message, List<Violation> details, Duration retryAfter,
            @Nullable String runId) {
        super(code, message, null);
        this.status = status;
        this.details = List.copyOf(details);
        this.retryAfter = retryAfter;
        this.runId = runId;
    }

    /** The status, such as 404. */
    public int status() { return status; }

    /** The defects of the request. */
    public List<Violation> details() { return details; }

    /** The pause before a repetition; zero if a repetition is useless. */
    public Duration retryAfter() { return retryAfter; }

    /** The run of the reply, such as the run of a handoff that is being applied; null if it names none. */
    public @Nullable String runId() { return runId; }
}
