package worldengine.client;

import com.google.gson.JsonObject;
import com.google.gson.JsonArray;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.jspecify.annotations.Nullable;
import worldengine.client.contract.EventType;
import worldengine.client.contract.Verb;

/**
 * Emits the events of one run from another process than the engine, such as a plugin, one at a time. An event
 * gets its eventId before it is sent, so each retry has the same one. After a restart it gets another one, but
 * the run has an event once, by its idempotencyKey, and the emitter keeps the eventId that is stored. Calls
 * block; it is safe for concurrent use.
 */
public final class Emitter {
    private static final Set<String> ENDED = Set.of("COMPLETED", "FAILED", "CANCELLED");

    /** The run that an emitter emits events of; runId, planId and planVersion are in each event of the run. */
    public record RunIdentity(String runId, String tenantId, String projectId, String environmentId, String planId,
            String planVersion) {}

    /** An event as it is stored; {@code idempotent} means that the run had it before. */
    public record Appended(String eventId, long runSeq, String persistedAt, boolean idempotent) {}

    private final WorldEngine engine;
    private final String townId;
    private final RunIdentity run;
    private final int engineAttemptId;
    private final Map<String, String> ids = new HashMap<>(); // the eventId by idempotencyKey
    private final Map<String, Appended> stored = new HashMap<>(); // by idempotencyKey
    private final Map<String, String> status = new HashMap<>(); // of the run ("") and of each step attempt
    private final Map<String, String> stopped = new HashMap<>(); // the refusal of an entity

    /** Creates an emitter for a run about a town. */
    public Emitter(WorldEngine engine, String townId, RunIdentity run, int engineAttemptId) {
        this.engine = engine;
        this.townId = townId;
        this.run = run;
        this.engineAttemptId = engineAttemptId;
    }

    /** Takes note of an event that the run has: from another producer, or from before a restart. */
    public synchronized void observe(RunEvent event) {
        String key = Json.text(event.json(), "idempotencyKey"), id = Json.text(event.json(), "eventId");
        String at = Json.text(event.json(), "persistedAt");
        if (key == null || id == null) return;
        note(key, event.eventType(), event.stepId(), Json.integer(event.json(), "logicalAttemptId", 1),
            new Appended(id, event.runSeq(), at == null ? "" : at, true));
    }

    private void note(String key, String eventType, @Nullable String stepId, long attempt, Appended appended) {
        if (stored.containsKey(key)) return;
        ids.put(key, appended.eventId);
        stored.put(key, appended);
        var move = move(eventType);
        if (move != null && !move.stays() && refusal(eventType, stepId, attempt) == null) {
            status.put(entity(stepId, attempt), move.to());
        }
    }

    /** Appends an event of the run. */
    public Appended emit(String eventType, @Nullable JsonObject payload) { return emit(eventType, null, 1, payload); }

    /**
     * Appends an event, and returns it as it is stored; a repeated event is stored once. It throws an
     * {@link IllegalStateException} if the event is not valid in the state of its run or step; then it sends no
     * other event of that run or step attempt (RunEvents v2.0.1, section 5.3). It throws an EngineException as
     * every call.
     *
     * @param stepId the step; null for an event of the run
     * @param attempt which attempt of the step, from 1
     */
    public synchronized Appended emit(String eventType, @Nullable String stepId, long attempt,
            @Nullable JsonObject payload) {
        String key = Canonical.idempotencyKey(run.runId, stepId, attempt, eventType, run.planId, run.planVersion);
        var before = stored.get(key);
        if (before != null) return new Appended(before.eventId, before.runSeq, before.persistedAt, true);
        String entity = entity(stepId, attempt);
        String refusal = stopped.getOrDefault(entity, refusal(eventType, stepId, attempt));
        if (refusal != null) {
            stopped.put(entity, refusal);
            throw new IllegalStateException(refusal);
        }
        String eventId = ids.computeIfAbsent(key, k -> UUID.randomUUID().toString());
        var event = Json.of("runId", run.runId, "tenantId", run.tenantId, "projectId", run.projectId,
            "environmentId", run.environmentId, "planId", run.planId, "planVersion", run.planVersion,
            "eventId", eventId, "eventType", eventType, "stepId", stepId, "payload", payload, "idempotencyKey", key,
            "emittedAt", Instant.now().truncatedTo(ChronoUnit.MILLIS).toString(),
            "engineAttemptId", engineAttemptId, "logicalAttemptId", attempt);
        var events = new JsonArray();
        events.add(event);
        var reply = engine.request(Verb.RUN_APPEND, Json.of("townId", townId, "events", events));
        var appended = Json.list(reply, "appended", Emitter::appended);
        if (appended.isEmpty()) {
            throw new UnavailableException(UnavailableException.INVALID_ANSWER, "the reply of run.append has no event");
        }
        note(key, eventType, stepId, attempt, appended.get(0));
        return appended.get(0);
    }

    private static Appended appended(JsonObject json) {
        String id = Json.text(json, "eventId"), at = Json.text(json, "persistedAt");
        return new Appended(id == null ? "" : id, Json.integer(json, "runSeq", 0), at == null ? "" : at,
            Json.isTrue(json, "idempotent"));
    }

    /** Returns why an event is not valid now; null if it is. */
    private @Nullable String refusal(String eventType, @Nullable String stepId, long attempt) {
        var move = move(eventType);
        if (move == null) return null; // consumers change nothing for it
        String ofRun = status.getOrDefault("", "PENDING");
        if (move.ofStep() && ENDED.contains(ofRun)) {
            return eventType + " is not valid for a step of the run: it is " + ofRun + ", not RUNNING or PAUSED";
        }
        String now = status.getOrDefault(entity(stepId, attempt), "PENDING");
        if (move.from().contains(now)) return null;
        String entity = stepId == null ? "the run" : "step " + stepId + ", attempt " + attempt;
        return eventType + " is not valid for " + entity + ": it is " + now + ", not " + String.join(" or ", move.from());
    }

    private static String entity(@Nullable String stepId, long attempt) {
        return stepId == null ? "" : attempt + " " + stepId;
    }

    /** The type of an event that moves a status; null for others. */
    private static @Nullable EventType move(String eventType) {
        return EventType.named(eventType).filter(type -> type.ofRun() || type.ofStep()).orElse(null);
    }
}
