package worldengine.client;

import com.google.gson.JsonObject;
import java.util.Objects;

/**
 * A run: one delivery of a handoff.
 *
 * @param runId its id
 * @param status its status, a name of {@link worldengine.client.contract.RunStatus}
 * @param lastEventSeq the number of its last event
 * @param json the whole reply
 */
public record Run(String runId, String status, long lastEventSeq, JsonObject json) {
    static Run read(JsonObject json) {
        return new Run(Objects.requireNonNullElse(Json.text(json, "runId"), ""),
            Objects.requireNonNullElse(Json.text(json, "status"), ""), Json.integer(json, "lastEventSeq", 0), json);
    }
}
