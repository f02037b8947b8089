package worldengine.plugin;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import worldengine.client.Json;
import worldengine.client.contract.ProposalType;

/**
 * An accepted command that the town's game has to apply: a command-apply.v1.
 *
 * <p><b>All texts are words of agents</b>, with any characters: never give them to a console, look ids up among
 * known names, and show them through {@link SafeText}.
 *
 * @param applyId the id of this application; the same id is never applied twice
 * @param runId the run, for logs and step events
 * @param attempt the engine's attempt, from 1
 * @param townId the town
 * @param actorId the agent that proposed it
 * @param type what to do
 * @param argument its one argument: the mission, project, focus or talk type
 * @param snapshot the town before the command, a snapshot.v1
 * @param expected the town afterwards by the rules of the world, a snapshot.v1
 * @param timeoutMs how many milliseconds from its arrival it may be begun
 * @param traceparent the W3C trace of the handoff; null if it has none
 * @param tracestate the state of the trace; null if it has none
 * @param json the whole request
 */
public record Command(String applyId, String runId, long attempt, String townId, String actorId, ProposalType type,
        String argument, JsonObject snapshot, JsonObject expected, long timeoutMs, @Nullable String traceparent,
        @Nullable String tracestate, JsonObject json) {
    /** A command of a type that this version does not know. */
    static final class UnknownType extends JsonParseException {
        private static final long serialVersionUID = 1;
        final String applyId, townId;
        final long attempt;

        UnknownType(String type, String applyId, String townId, long attempt) {
            super("type is unknown to this version: " + SafeText.line(type, 64));
            this.applyId = applyId;
            this.townId = townId;
            this.attempt = attempt;
        }
    }

    private static final String VERSION = "command-apply.v1", ID = "handoff_[0-9a-f]{64}";

    /** Returns the project of a PROJECT_ADVANCE after the command; null if the town has no such project. */
    public @Nullable JsonObject expectedProject() {
        if (!(expected.get("projects") instanceof JsonArray projects)) return null;
        for (JsonElement project : projects) {
            if (project instanceof JsonObject p && argument.equals(Json.text(p, "id"))) return p;
        }
        return null;
    }

    /** Returns the progress of the project of a PROJECT_ADVANCE after the command, from 0 to 1; 0 if it is unknown. */
    public double expectedProgress() {
        var project = expectedProject();
        return project != null && project.has("progress") ? project.get("progress").getAsDouble() : 0;
    }

    /** Returns the title of the mission after a MAYOR_ACCEPT_MISSION; null if the town has none. */
    public @Nullable String expectedMission() {
        var mission = Json.child(expected, "mission");
        return mission == null ? null : Json.text(mission, "title");
    }

    /** Returns the day of the town after the command. */
    public long expectedDay() { return Json.integer(expected, "day", 0); }

    /** Reads a request. It throws a {@link JsonParseException} that says why it is no command. */
    static Command parse(byte[] data, @Nullable String traceparent, @Nullable String tracestate) {
        var json = Json.object(data);
        require(VERSION.equals(Json.text(json, "schemaVersion")), "schemaVersion is not " + VERSION);
        String applyId = text(json, "applyId"), townId = text(json, "townId");
        require(applyId.matches(ID), "applyId is no id of a handoff");
        long timeout = Json.integer(json, "timeoutMs", -1), attempt = Json.integer(json, "logicalAttemptId", 0);
        require(timeout >= 0, "timeoutMs is no count of milliseconds");
        require(attempt >= 1, "logicalAttemptId is no count from 1");
        String named = text(json, "type");
        var type = ProposalType.named(named).orElseThrow(() -> new UnknownType(named, applyId, townId, attempt));
        var args = object(json, "args");
        var expected = object(json, "expectedSnapshot");
        require(townId.equals(Json.text(expected, "townId")), "expectedSnapshot is of another town");
        return new Command(applyId, text(json, "runId"), attempt, townId, text(json, "actorId"), type,
            text(args, type.argument()), object(json, "snapshot"), expected, timeout, traceparent, tracestate, json);
    }

    private static String text(JsonObject json, String name) {
        String text = Json.text(json, name);
        require(text != null && !text.isEmpty(), name + " is no text");
        return Objects.requireNonNull(text);
    }

    private static JsonObject object(JsonObject json, String name) {
        var object = Json.child(json, name);
        require(object != null, name + " is no object");
        return Objects.requireNonNull(object);
    }

    private static void require(boolean holds, String message) {
        if (!holds) throw new JsonParseException(message);
    }
}
