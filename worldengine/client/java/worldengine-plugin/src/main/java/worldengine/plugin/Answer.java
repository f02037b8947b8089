package worldengine.plugin;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.jspecify.annotations.Nullable;
import worldengine.client.Json;

/**
 * A command-applied.v1.
 *
 * @param retryable whether another attempt makes sense, of refused
 * @param wire its bytes
 */
record Answer(String status, boolean retryable, byte[] wire) {
    static final String APPLIED = "applied", REFUSED = "refused", BUSY = "busy", IN_PROGRESS = "in-progress";

    /** Whether it is the outcome of its attempt. */
    boolean definite() { return status.equals(APPLIED) || status.equals(REFUSED); }

    /** Whether it says that the command is not begun. */
    boolean busy() { return status.equals(BUSY); }

    /** Returns the answer of an outcome; null if that is unknown. */
    static @Nullable Answer of(String applyId, Outcome outcome, Duration retryAfter) {
        if (outcome instanceof Outcome.Applied applied) {
            var json = json(applyId, APPLIED);
            if (applied.snapshot() != null) json.add("snapshot", applied.snapshot());
            if (applied.embodiment() != null) json.add("embodiment", applied.embodiment());
            if (!applied.artifacts().isEmpty()) {
                var artifacts = new JsonArray();
                applied.artifacts().forEach(artifacts::add);
                json.add("artifacts", artifacts);
            }
            return new Answer(APPLIED, false, bytes(json));
        }
        if (outcome instanceof Outcome.Refused refused) {
            var json = json(applyId, REFUSED);
            json.addProperty("reasonCode", refused.reasonCode());
            json.addProperty("message", refused.message());
            if (refused.forNow()) json.addProperty("retryable", true);
            return new Answer(REFUSED, refused.forNow(), bytes(json));
        }
        return outcome instanceof Outcome.NotBegun ? later(applyId, BUSY, retryAfter) : null;
    }

    /** Returns an answer that is not definite. */
    static Answer later(String applyId, String status, Duration retryAfter) {
        var json = json(applyId, status);
        json.addProperty("retryAfterMs", retryAfter.toMillis());
        return new Answer(status, false, bytes(json));
    }

    /** Reads an answer of a memory. */
    static Answer read(JsonObject json) {
        String status = Json.text(json, "status");
        if (status == null) throw new JsonParseException("an answer has no status");
        return new Answer(status, status.equals(REFUSED) && Json.isTrue(json, "retryable"), bytes(json));
    }

    private static JsonObject json(String applyId, String status) {
        var json = new JsonObject();
        json.addProperty("schemaVersion", "command-applied.v1");
        json.addProperty("applyId", applyId);
        json.addProperty("status", status);
        return json;
    }

    private static byte[] bytes(JsonObject json) { return json.toString().getBytes(StandardCharsets.UTF_8); }
}
