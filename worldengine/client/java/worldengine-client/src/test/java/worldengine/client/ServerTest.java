package worldengine.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import worldengine.client.contract.ProposalType;
import worldengine.client.contract.Verb;

/** The client against a real server, and against a world whose requests the test answers. */
@Tag("server")
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class ServerTest {
    private static final String TOWN = "town-threatened";
    private static World world;
    private WorldEngine engine;

    @BeforeAll
    static void startWorld() throws Exception { world = new World(); }

    @AfterAll
    static void stopWorld() throws Exception { world.close(); }

    @BeforeEach
    void connect() { engine = connected("main"); }

    @AfterEach
    void close() { engine.close(); }

    private static WorldEngine connected(String name) {
        return WorldEngine.connect(ConnectionSettings.of(world.url), name);
    }

    private static Handoff talk(Town town) {
        return Handoff.of(town, Proposal.of(ProposalType.TOWNSFOLK_TALK, "casual", "mayor-1", "They are sad."));
    }

    @Test
    void sends_andReadsWhatBecameOfIt() {
        var town = engine.town(TOWN);
        var handoff = talk(town);
        var would = engine.dryRun(handoff);
        var outcome = engine.send(handoff);
        assertEquals("executed", outcome.result().status());
        assertEquals(would.resultId(), outcome.result().resultId());
        assertNull(outcome.duplicate());
        assertEquals(town.decisionEpoch() + 1, engine.town(TOWN).decisionEpoch());
        assertEquals(outcome, engine.result(handoff.idempotencyKey(), TOWN));
        assertEquals("COMPLETED", engine.run(outcome.runId()).status());

        var sequence = new ArrayList<Long>();
        for (var event : engine.eventsOfRun(outcome.runId())) sequence.add(event.runSeq());
        assertEquals(List.of(1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L, 10L), sequence);
        assertTrue(engine.runs(Json.of("townId", TOWN, "limit", 1)).anyMatch(run -> run.runId().equals(outcome.runId())));

        var again = engine.send(handoff).result();
        assertEquals("duplicate", again.status(), "an answer that was not lost is not replaced");
        assertEquals(outcome.result().resultId(), again.duplicateOf());
        assertEquals(1, engine.send(talk(engine.town(TOWN)), Call.DEFAULT.withRevision(1)).result().revision());
    }

    @Test
    void towns_arePutPatchedListedAndRemoved() {
        var snapshot = engine.town(TOWN).snapshot().deepCopy();
        for (var id : List.of("a", "b c", "d.é")) {
            snapshot.addProperty("townId", id);
            engine.putTown(snapshot);
        }
        var listed = engine.towns(Json.of("limit", 2)).map(Town::townId).toList();
        assertTrue(listed.containsAll(List.of("a", "b c", "d.é")), listed::toString);
        assertEquals(List.of("main"), engine.worlds().map(world -> world.get("world").getAsString()).toList());
        var exists = assertThrows(ReplyException.class, () -> engine.putTown(snapshot));
        assertEquals("TOWN_EXISTS 409", exists.code() + " " + exists.status());

        var before = engine.town("a");
        var next = engine.patchTown("a", Json.of("pressure", Json.of("hope", 0.75)), before.snapshotHash());
        assertEquals(0.75, next.snapshot().getAsJsonObject("pressure").get("hope").getAsDouble());
        assertEquals("SNAPSHOT_CONFLICT", assertThrows(ReplyException.class, () ->
            engine.patchTown("a", new JsonObject(), before.snapshotHash())).code());
        engine.removeTown("a");
        assertEquals("UNKNOWN_TOWN", assertThrows(ReplyException.class, () -> engine.town("a")).code());
        assertEquals("town-history-summary.v1",
            engine.memory(TOWN, 3, 4).getAsJsonObject("townSummary").get("type").getAsString());
    }

    @Test
    void events_areFollowedOverTheDeathOfTheServer() throws Exception {
        try (var own = new World(); var client = WorldEngine.connect(ConnectionSettings.of(own.url), "main");
                var commits = client.commits(TOWN, "0", loss -> { });
                var events = client.events(TOWN, "0", loss -> { })) {
            assertTrue(commits.next().events().isEmpty(), "the town was put");
            var handoff = talk(client.town(TOWN));
            own.kill();
            var sent = client.sendAsync(handoff, Call.DEFAULT.withTimeout(Duration.ofMinutes(1)));
            own.start();
            assertEquals("executed", sent.get(1, TimeUnit.MINUTES).result().status());
            assertEquals(10, commits.next().events().size());
            assertEquals("RunStarted", events.next().eventType());
            var following = CompletableFuture.supplyAsync(() -> client.changes(TOWN, null, loss -> { }).hasNext());
            client.close();
            assertFalse(following.get(1, TimeUnit.MINUTES), "it ends with the client");
        }
    }

    @Test
    void refusals_areRepeatedIfTheServerSaysSo() throws Exception {
        try (var fake = connected("fake")) {
            var asked = World.fake(fake, "fake", "town.get", (n, body) ->
                n < 3 ? World.Reply.error(n == 1 ? 429 : 503, "LATER", 20) : World.Reply.of("townId", "t"));
            assertEquals("t", fake.town("t").townId());
            assertEquals(3, asked.size());

            var put = World.fake(fake, "fake", "town.put", (n, body) -> World.Reply.error(503, "LOG_UNAVAILABLE", 20));
            var refused = assertThrows(ReplyException.class, () -> fake.putTown(new JsonObject()));
            assertEquals("LOG_UNAVAILABLE", refused.code(), "it may have been carried out");
            assertEquals(1, put.size());
            assertEquals(List.of(new ReplyException.Violation("/x", "bad")), refused.details());
            assertEquals("run-of-the-reply", refused.runId());
            assertEquals(Duration.ofMillis(20), refused.retryAfter());
        }
    }

    @Test
    void silence_isAnsweredWithTheSameBytes_butNotOfAChange() throws Exception {
        try (var fake = connected("silent")) {
            var patient = Call.DEFAULT.withTimeout(Duration.ofSeconds(30));
            var asked = World.fake(fake, "silent", "run.get", (n, body) -> n < 2 ? null : World.Reply.of("runId", "r"));
            assertEquals("r", fake.request(Verb.RUN_GET, Json.of("runId", "r"), patient).get("runId").getAsString());
            assertEquals(asked.get(0), asked.get(1));
            var changed = World.fake(fake, "silent", "town.patch", (n, body) -> null);
            assertEquals("TIMEOUT", assertThrows(UnavailableException.class, () ->
                fake.request(Verb.TOWN_PATCH, new JsonObject(), Call.DEFAULT.withTimeout(Duration.ofSeconds(2)))).code());
            assertEquals(1, changed.size());
        }
    }

    @Test
    void aLostAnswer_isReplacedByTheFirstResult() throws Exception {
        var town = engine.town(TOWN);
        var handoff = talk(town);
        var first = engine.send(handoff).result();
        var duplicate = engine.send(handoff).result();
        try (var fake = connected("lost")) {
            World.fake(fake, "lost", "handoff", (n, body) ->
                n == 1 ? World.Reply.error(503, "STOPPING", 10) : new World.Reply(duplicate.json().toString(), 0, "", 0));
            World.fake(fake, "lost", "result.get", (n, body) -> World.Reply.of("runId", "r1", "result", first.json()));
            assertEquals(new Outcome(first, "r1", duplicate), fake.send(handoff));
        }
    }

    @Test
    void aForgedResult_isNoAnswer() throws Exception {
        var handoff = talk(engine.town(TOWN));
        var forged = engine.dryRun(handoff).json().deepCopy();
        forged.addProperty("reasonCode", "FORGED");
        try (var fake = connected("forged")) {
            World.fake(fake, "forged", "handoff", (n, body) -> new World.Reply(forged.toString(), 0, "", 0));
            assertEquals("INVALID_ANSWER", assertThrows(UnavailableException.class, () -> fake.send(handoff)).code());
        }
    }

    @Test
    void aCall_endsByItsCallerAndSaysWhyNoServerAnswers() throws Exception {
        try (var fake = connected("nobody")) {
            assertEquals("NO_RESPONDERS", assertThrows(UnavailableException.class, () -> fake.town("t")).code());
            World.fake(fake, "nobody", "town.get", (n, body) -> null);
            var waiting = fake.requestAsync(Verb.TOWN_GET, Json.of("townId", "t"), Call.DEFAULT);
            assertTrue(waiting.cancel(true));
            var interrupted = CompletableFuture.supplyAsync(() -> {
                Thread.currentThread().interrupt();
                return assertThrows(UnavailableException.class, () -> fake.town("t")).code();
            });
            assertEquals("ABORTED", interrupted.get(1, TimeUnit.MINUTES));
            var large = Json.of("townId", "x".repeat(2 << 20));
            assertEquals("PAYLOAD_TOO_LARGE",
                assertThrows(ReplyException.class, () -> fake.request(Verb.TOWN_GET, large)).code());
            fake.close();
            assertEquals("CONNECTION", assertThrows(UnavailableException.class, () -> fake.town("t")).code());
        }
        var refused = assertThrows(UnavailableException.class, () -> WorldEngine.connect("nats://ada:secret@127.0.0.1:1"));
        assertFalse(refused.getMessage().contains("secret"), refused.getMessage());
        assertThrows(IllegalArgumentException.class, () -> connected("a.b"));
    }

    @Test
    void emitter_storesAnEventOnce() {
        var run = new Emitter.RunIdentity("run-of-java-" + System.nanoTime(), "default", "default", "default", "plan", "1");
        var emitter = new Emitter(engine, TOWN, run, 1);
        var started = emitter.emit("RunStarted", Json.of("townId", TOWN));
        emitter.emit("StepStarted", "dig", 1, null);
        assertTrue(emitter.emit("RunStarted", null).idempotent());
        assertThrows(IllegalStateException.class, () -> emitter.emit("RunResumed", null));
        assertThrows(IllegalStateException.class, () -> emitter.emit("RunCompleted", null), "the run is stopped");

        var restarted = new Emitter(engine, TOWN, run, 2);
        var again = restarted.emit("RunStarted", null);
        assertTrue(again.idempotent());
        assertEquals(started.eventId(), again.eventId());
        assertNotEquals("", again.persistedAt());
    }

    @Test
    void approvals_areWaitedFor() throws Exception {
        var snapshot = engine.town(TOWN).snapshot().deepCopy();
        snapshot.addProperty("townId", "asks");
        engine.request(Verb.TOWN_PUT, Json.of("snapshot", snapshot, "approval", List.of("TOWNSFOLK_TALK")));
        var handoff = talk(engine.town("asks"));
        var waits = new CompletableFuture<Result>();
        var sent = engine.sendAsync(handoff, Call.DEFAULT.withApprovalWait(Duration.ofMinutes(1), waits::complete));
        assertEquals("APPROVAL_REQUIRED", waits.get(30, TimeUnit.SECONDS).reasonCode());
        var waiting = engine.approvals("asks").toList().get(0);
        engine.decide(Json.of("handoffId", handoff.handoffId(), "townId", "asks", "decision", "approve",
            "reason", "Fine.", "actorId", "ada", "handoffHash", waiting.get("handoffHash")));
        assertEquals("executed", sent.get(1, TimeUnit.MINUTES).result().status());
        assertEquals(0, engine.alerts(true).filter(alert -> alert.get("townId") != null
            && alert.get("townId").getAsString().equals("asks")).count());
    }
}
