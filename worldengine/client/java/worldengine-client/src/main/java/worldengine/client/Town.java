package worldengine.client;

import com.google.gson.JsonObject;
import java.util.Objects;

/**
 * A town as the server has it.
 *
 * @param townId its id
 * @param snapshot its state, a snapshot.v1; empty in a list of towns
 * @param snapshotHash the hash of the state, for a handoff or a change of exactly this state
 * @param decisionEpoch its day
 * @param json the whole reply
 */
public record Town(String townId, JsonObject snapshot, String snapshotHash, long decisionEpoch, JsonObject json) {
    static Town read(JsonObject json) {
        return new Town(Objects.requireNonNullElse(Json.text(json, "townId"), ""),
            Objects.requireNonNullElseGet(Json.child(json, "snapshot"), JsonObject::new),
            Objects.requireNonNullElse(Json.text(json, "snapshotHash"), ""),
            Json.integer(json, "decisionEpoch", 0), json);
    }
}
