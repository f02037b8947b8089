package worldengine.client;

import org.jspecify.annotations.Nullable;

/**
 * The outcome of a handoff that was sent.
 *
 * @param result its result, verified
 * @param runId the run of the result
 * @param duplicate the answer to the last attempt of the call, if an earlier attempt was accepted and its
 *     answer was lost; {@code result} is then the earlier attempt's. Null otherwise
 */
public record Outcome(Result result, String runId, @Nullable Result duplicate) {}
