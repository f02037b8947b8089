package worldengine.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import org.jspecify.annotations.Nullable;

/**
 * A condition that the server checks before it accepts a handoff, such as {@code project_exists}.
 *
 * @param kind the kind of the condition
 * @param targetId the id of the thing that it is about, or null
 * @param field the member that it is about, or null
 * @param expected a text, number, boolean or JSON null, or null if there is none
 */
public record Precondition(String kind, @Nullable String targetId, @Nullable String field,
        @Nullable JsonElement expected) {
    /** Returns a precondition about a thing. */
    public static Precondition of(String kind, String targetId) {
        return new Precondition(kind, targetId, null, null);
    }

    JsonObject json() {
        return Json.of("kind", kind, "targetId", targetId, "field", field, "expected", expected);
    }

    static Precondition read(JsonObject json) {
        String kind = Json.text(json, "kind");
        return new Precondition(kind == null ? "" : kind, Json.text(json, "targetId"), Json.text(json, "field"),
            json.get("expected"));
    }
}
