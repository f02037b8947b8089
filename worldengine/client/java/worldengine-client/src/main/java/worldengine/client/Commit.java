package worldengine.client;

import com.google.gson.JsonObject;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A commit of the world's log.
 *
 * @param cursor continues after it: keep it to go on after a restart
 * @param at when it was stored, a time of RFC 3339; null if it is damaged
 * @param damaged whether it cannot be read: its events are missing
 * @param events its run events
 * @param json the whole commit
 */
public record Commit(String cursor, @Nullable String at, boolean damaged, List<RunEvent> events, JsonObject json) {
    static Commit read(JsonObject json) {
        return new Commit(Objects.requireNonNullElse(Json.text(json, "cursor"), ""), Json.text(json, "at"),
            Json.isTrue(json, "damaged"), Json.list(json, "events", RunEvent::read), json);
    }
}
