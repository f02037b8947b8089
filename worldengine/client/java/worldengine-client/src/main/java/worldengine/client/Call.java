package worldengine.client;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Options of a call; the {@code with} methods return changed copies of {@link #DEFAULT}.
 *
 * @param timeout the time for the call with all its repetitions; null means the client's, 30 s
 * @param headers further headers: the plugin and the run events get the {@code traceparent} and
 *     {@code tracestate} of a handoff
 * @param revision of {@code send} and {@code result}: the revision of the result; null means the server's default
 * @param approvalWait of {@code send}: how long it waits for a person's decision; zero for not at all
 * @param onPaused of {@code send}: is called when the handoff waits for the end of a pause or for an absent game
 * @param onApproval of {@code send}: is called while the handoff waits for a person, about once a minute
 */
public record Call(@Nullable Duration timeout, Map<String, String> headers, @Nullable Integer revision,
        Duration approvalWait, Consumer<EngineException> onPaused, Consumer<Result> onApproval) {
    /** The defaults. */
    public static final Call DEFAULT = new Call(null, Map.of(), null, Duration.ZERO, paused -> {}, result -> {});

    /** Copies the headers. */
    public Call {
        headers = Map.copyOf(headers);
    }

    /** Returns it with another time for the call. */
    public Call withTimeout(Duration timeout) {
        return new Call(timeout, headers, revision, approvalWait, onPaused, onApproval);
    }

    /** Returns it with one more header. */
    public Call withHeader(String name, String value) {
        var more = new HashMap<>(headers);
        more.put(name, value);
        return new Call(timeout, more, revision, approvalWait, onPaused, onApproval);
    }

    /** Returns it with the revision of results, 0 or 1. */
    public Call withRevision(int revision) {
        return new Call(timeout, headers, revision, approvalWait, onPaused, onApproval);
    }

    /** Returns it with a wait for a person's decision, and a function for the time of the wait. */
    public Call withApprovalWait(Duration wait, Consumer<Result> onApproval) {
        return new Call(timeout, headers, revision, wait, onPaused, onApproval);
    }

    /** Returns it with a function for a handoff that waits. */
    public Call withOnPaused(Consumer<EngineException> onPaused) {
        return new Call(timeout, headers, revision, approvalWait, onPaused, onApproval);
    }
}
