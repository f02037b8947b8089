package worldengine.client;

import com.google.gson.JsonObject;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * An event of a run.
 *
 * @param runId the run
 * @param runSeq its place in the run, from 1
 * @param eventType its type, often one of {@link worldengine.client.contract.EventType}
 * @param stepId its step; null if it is about the run
 * @param payload its content; empty if it has none
 * @param json the whole event
 */
public record RunEvent(String runId, long runSeq, String eventType, @Nullable String stepId, JsonObject payload,
        JsonObject json) {
    /** Reads an event of a reply. */
    public static RunEvent read(JsonObject json) {
        return new RunEvent(Objects.requireNonNullElse(Json.text(json, "runId"), ""), Json.integer(json, "runSeq", 0),
            Objects.requireNonNullElse(Json.text(json, "eventType"), ""), Json.text(json, "stepId"),
            Objects.requireNonNullElseGet(Json.child(json, "payload"), JsonObject::new), json);
    }
}
