package worldengine.plugin;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.Locale;
import java.util.Objects;
import java.util.logging.Logger;
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
    // Together they fit into a message of 1 MiB. The engine itself refuses a snapshot above 512 KB, with an alert.
    private static final int MOST_SNAPSHOT = 768 << 10, MOST_EMBODIMENT = 16 << 10, MOST_ARTIFACTS = 128 << 10;
    private static final int MOST_MESSAGE = 1024, DEEPEST = 31; // a member of the answer, which has 32 levels

    /** Whether it is the outcome of its attempt. */
    boolean definite() { return status.equals(APPLIED) || status.equals(REFUSED); }

    /** Whether it says that the command is not begun. */
    boolean busy() { return status.equals(BUSY); }

    /** Returns the answer of an outcome; null if that is unknown. It leaves out members that the engine cannot read. */
    static @Nullable Answer of(String applyId, Outcome outcome, Duration retryAfter, Logger logger) {
        if (outcome instanceof Outcome.Applied applied) {
            return new Answer(APPLIED, false, bytes(json(applyId, applied, logger)));
        }
        if (outcome instanceof Outcome.Refused refused) {
            var json = json(applyId, REFUSED);
            json.addProperty("reasonCode", refused.reasonCode());
            String message = Objects.requireNonNullElse(refused.message(), "");
            json.addProperty("message", message.substring(0, Math.min(message.length(), MOST_MESSAGE)));
            if (refused.forNow()) json.addProperty("retryable", true);
            return new Answer(REFUSED, refused.forNow(), bytes(json));
        }
        return outcome instanceof Outcome.NotBegun ? later(applyId, BUSY, retryAfter) : null;
    }

    private static JsonObject json(String applyId, Outcome.Applied applied, Logger logger) {
        var json = json(applyId, APPLIED);
        if (applied.snapshot() != null) add(json, "snapshot", applied.snapshot(), MOST_SNAPSHOT, logger);
        if (applied.embodiment() != null) add(json, "embodiment", applied.embodiment(), MOST_EMBODIMENT, logger);
        if (!applied.artifacts().isEmpty()) {
            var artifacts = new JsonArray();
            applied.artifacts().forEach(artifacts::add);
            add(json, "artifacts", artifacts, MOST_ARTIFACTS, logger);
        }
        return json;
    }

    /** Adds a member. An invalid one is left out, since the command is applied all the same. */
    private static void add(JsonObject json, String name, JsonElement value, int most, Logger logger) {
        String defect = defect(value, most);
        if (defect == null) {
            json.add(name, value);
            return;
        }
        logger.severe("the command " + Json.text(json, "applyId") + " is answered applied without its " + name + ": "
            + defect + (name.equals("snapshot") ? "; mend the function, and town.put the true state, since the engine "
            + "stores the expected one" : "; mend the function"));
    }

    /** Returns why a value is no JSON that the engine reads; null if it is. */
    private static @Nullable String defect(JsonElement value, int most) {
        String defect = defect(value, DEEPEST, "");
        if (defect != null) return defect;
        try {
            String text = value.toString();
            int size = text.getBytes(StandardCharsets.UTF_8).length;
            if (size > most) return "it has " + size + " bytes, and at most " + most + " can be sent";
            Json.object("{\"value\":" + text + "}");
            return null;
        } catch (JsonParseException e) {
            return "it is no JSON: " + e.getMessage();
        }
    }

    private static @Nullable String defect(JsonElement value, int levels, String path) {
        if (value.isJsonPrimitive() && value.getAsJsonPrimitive().isNumber()) {
            return isFinite(value) ? null : path + " is no number of JSON";
        }
        if (!value.isJsonArray() && !value.isJsonObject()) return null;
        if (levels == 0) return "it has more than " + DEEPEST + " levels";
        if (value instanceof JsonArray array) {
            for (int i = 0; i < array.size(); i++) {
                String defect = defect(array.get(i), levels - 1, path + "/" + i);
                if (defect != null) return defect;
            }
            return null;
        }
        var names = new HashSet<String>();
        for (var member : value.getAsJsonObject().entrySet()) {
            String at = path + "/" + member.getKey();
            if (!names.add(member.getKey().toLowerCase(Locale.ROOT))) return at + " is there in two spellings";
            String defect = defect(member.getValue(), levels - 1, at);
            if (defect != null) return defect;
        }
        return null;
    }

    private static boolean isFinite(JsonElement number) {
        try {
            return Double.isFinite(number.getAsDouble());
        } catch (NumberFormatException e) {
            return false;
        }
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
