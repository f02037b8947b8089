package worldengine.client;

import com.google.gson.JsonObject;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A verified execution-result.v1: its booleans are those of its status, and its id is its hash.
 *
 * @param status executed, failed, rejected, stale or duplicate
 * @param reasonCode why, for machines, such as {@code EXECUTED} or {@code PROJECT_BLOCKED}
 * @param resultId its id
 * @param json the whole result
 */
public record Result(String status, String reasonCode, String resultId, JsonObject json) {
    private static final Map<String, boolean[]> BOOLEANS = Map.of(
        "executed", new boolean[] {true, true}, "failed", new boolean[] {true, false},
        "rejected", new boolean[2], "stale", new boolean[2], "duplicate", new boolean[2]);
    private static final String[] HASHED = {"handoffId", "status", "accepted", "executed", "reasonCode",
        "evaluation", "worldState"};
    private static final String[] HASHED_1 = {"handoffId", "status", "accepted", "executed", "reasonCode",
        "evaluation", "worldState", "type", "schemaVersion", "proposalId", "actorId", "townId", "proposalType",
        "command", "authorityCommands", "embodiment"};

    /** Reads a result. It throws an {@link IllegalArgumentException} that says what is wrong with it. */
    public static Result parse(JsonObject json) {
        defect(json).ifPresent(why -> {
            throw new IllegalArgumentException("no valid execution-result.v1: " + why);
        });
        return new Result(text(json, "status"), text(json, "reasonCode"), text(json, "resultId"), json);
    }

    /** Returns the defect of a value that is no valid result. */
    public static Optional<String> defect(JsonObject json) {
        boolean one = isRevision1(json);
        if (!one && !text(json, "schemaVersion").equals("execution-result.v1")) {
            return Optional.of("it is no execution-result.v1");
        }
        String status = text(json, "status");
        var required = BOOLEANS.get(status);
        if (required == null) return Optional.of("its status is " + status);
        if (!isBoolean(json, "accepted", required[0]) || !isBoolean(json, "executed", required[1])) {
            return Optional.of("accepted and executed are not those of " + status);
        }
        if (!Objects.equals(json.get("idempotencyKey"), json.get("proposalId"))) {
            return Optional.of("idempotencyKey is not its proposalId");
        }
        if (one && !Objects.equals(json.get("executionId"), json.get("resultId"))) {
            return Optional.of("executionId is not its resultId");
        }
        String id = deriveId(json);
        return text(json, "resultId").equals(id) ? Optional.empty() : Optional.of("resultId is not its hash, " + id);
    }

    /** Returns the id that a result must have: a hash of the members that its revision hashes. */
    public static String deriveId(JsonObject json) {
        return "result_" + Canonical.hash(Json.only(json, isRevision1(json) ? HASHED_1 : HASHED));
    }

    /** Whether the command is applied. */
    public boolean executed() { return status.equals("executed"); }

    /** The revision of its form, 0 or 1. */
    public int revision() { return isRevision1(json) ? 1 : 0; }

    /** Of a duplicate: the id of the first result of its key. */
    public @Nullable String duplicateOf() {
        var evaluation = Json.child(json, "evaluation");
        var check = evaluation == null ? null : Json.child(evaluation, "duplicateCheck");
        return check == null ? null : Json.text(check, "duplicateOf");
    }

    private static boolean isRevision1(JsonObject json) {
        return text(json, "type").equals("execution-result.v1") && Json.integer(json, "schemaVersion", 0) == 1;
    }

    private static boolean isBoolean(JsonObject json, String name, boolean value) {
        var member = json.get(name);
        return member != null && member.isJsonPrimitive() && member.getAsJsonPrimitive().isBoolean()
            && member.getAsBoolean() == value;
    }

    private static String text(JsonObject json, String name) {
        return Objects.requireNonNullElse(Json.text(json, name), "");
    }
}
