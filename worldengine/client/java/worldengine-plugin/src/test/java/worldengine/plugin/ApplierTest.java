package worldengine.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.jspecify.annotations.Nullable;
import worldengine.client.Json;
import worldengine.client.contract.ProposalType;

/** The rules of the protocol, without a network: the test is the engine, and the game. */
class ApplierTest {
    /** A call of apply or recover, which the test answers. */
    private record Called(String function, String applyId, long attempt, CompletableFuture<Outcome> outcome) {}

    @TempDir
    private Path dir;
    private final BlockingQueue<Called> calls = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> answers = new LinkedBlockingQueue<>();
    private final Logger logger = Logger.getAnonymousLogger();
    private Memory memory;
    private Applier applier;
    private Executor game = Runnable::run;

    @BeforeEach
    void start() { serve(true, 256, 16); }

    @AfterEach
    void stop() {
        applier.close(Duration.ZERO);
        memory.close();
    }

    private void serve(boolean recovers, int queue, int concurrency) {
        logger.setLevel(Level.OFF);
        if (memory != null) stop();
        memory = new Memory(dir.resolve("memory"), Memory.MOST_RECORDS, logger);
        var allowed = EnumSet.complementOf(EnumSet.of(ProposalType.SALVAGE_PLAN));
        applier = new Applier(new Applier.Config(call("apply"), recovers ? call("recover") : null, allowed, queue,
            concurrency, Duration.ofMillis(250), Duration.ofMillis(50), logger), memory, new MainThread(task -> game.execute(task), 1_000_000,
                Duration.ofMillis(50), logger),
            (reply, answer) -> answers.add(reply + " " + text(answer)));
    }

    private Applier.AsyncFunction call(String function) {
        return command -> {
            var called = new Called(function, command.applyId().substring(71), command.attempt(), new CompletableFuture<>());
            calls.add(called);
            CompletionStage<Outcome> stage = called.outcome;
            return stage;
        };
    }

    private static String text(byte[] answer) {
        var json = Json.object(answer);
        String code = Json.text(json, "reasonCode");
        return Json.text(json, "status") + (code == null ? "" : " " + code) + (json.has("retryable") ? " for now" : "");
    }

    private void ask(String reply, String town, int id, int attempt, long timeoutMs, ProposalType type) {
        var command = Command.parse(request(town, id, attempt, timeoutMs, type), null, null);
        applier.request(command, reply, true);
    }

    static byte[] request(String town, int id, int attempt, long timeoutMs, ProposalType type) {
        var json = new JsonObject();
        json.addProperty("schemaVersion", "command-apply.v1");
        json.addProperty("applyId", "handoff_" + "0".repeat(63) + id);
        for (var name : new String[] {"runId", "actorId"}) json.addProperty(name, "x");
        json.addProperty("townId", town);
        json.addProperty("type", type.wire());
        json.addProperty("logicalAttemptId", attempt);
        json.addProperty("timeoutMs", timeoutMs);
        var args = new JsonObject();
        args.addProperty(type.argument(), "casual");
        json.add("args", args);
        var snapshot = new JsonObject();
        snapshot.addProperty("townId", town);
        json.add("snapshot", snapshot);
        json.add("expectedSnapshot", snapshot);
        return json.toString().getBytes(StandardCharsets.UTF_8);
    }

    private void ask(String reply, String town, int id, int attempt) {
        ask(reply, town, id, attempt, 60_000, ProposalType.TOWNSFOLK_TALK);
    }

    private void ask(String reply, String town, int id) { ask(reply, town, id, 1); }

    private Called called(String function, int id) throws InterruptedException {
        var called = calls.poll(10, TimeUnit.SECONDS);
        assertEquals(function + " " + id, called == null ? null : called.function + " " + called.applyId);
        return called;
    }

    private void answered(String... expected) throws InterruptedException {
        for (var answer : expected) assertEquals(answer, answers.poll(10, TimeUnit.SECONDS));
    }

    private void quiet() {
        assertEquals(0, calls.size(), calls::toString);
        assertEquals(0, answers.size(), answers::toString);
    }

    @Test
    void aCommand_isAppliedOnce_alsoByTheNextProcess() throws Exception {
        ask("x", "a", 1);
        called("apply", 1).outcome.complete(Outcome.applied());
        answered("x applied");
        ask("y", "a", 1, 2);
        answered("y applied");
        serve(true, 256, 16);
        ask("z", "a", 1);
        answered("z applied");
        quiet();
    }

    @Test
    void aRefusalForNow_isOfItsAttempt() throws Exception {
        ask("x", "a", 1);
        called("apply", 1).outcome.complete(Outcome.refusedForNow("LATER", "Later."));
        answered("x refused LATER for now");
        ask("x", "a", 1);
        answered("x refused LATER for now");
        ask("y", "a", 1, 2);
        called("apply", 1).outcome.complete(Outcome.refused("NEVER", "Never."));
        answered("y refused NEVER");
        ask("z", "a", 1, 3);
        answered("z refused NEVER");
        quiet();
    }

    @Test
    void aRepeatedRequest_isInProgress_andEachReplySubjectGetsTheOutcomeOnce() throws Exception {
        ask("x", "a", 1);
        var first = called("apply", 1);
        ask("y", "a", 1);
        ask("y", "a", 1);
        ask("z", "a", 1, 2);
        answered("y in-progress", "y in-progress", "z in-progress");
        first.outcome.complete(Outcome.refusedForNow("LATER", "Later."));
        answered("x refused LATER for now", "y refused LATER for now");
        ask("z", "a", 1, 2);
        called("apply", 1).outcome.complete(Outcome.applied());
        answered("z applied");
        quiet();
    }

    @Test
    void aTown_hasOneOrder_andTownsDoNotWaitForEachOther() throws Exception {
        ask("1", "a", 1);
        ask("2", "a", 2);
        ask("3", "b", 3);
        ask("2", "a", 2);
        var first = called("apply", 1);
        called("apply", 3).outcome.complete(Outcome.applied());
        answered("2 busy", "3 applied");
        first.outcome.complete(Outcome.applied());
        called("apply", 2).outcome.complete(Outcome.applied());
        answered("1 applied", "2 applied");
        quiet();
    }

    @Test
    void beyondTheQueue_isBusy() throws Exception {
        serve(true, 2, 1);
        ask("1", "a", 1);
        var first = called("apply", 1);
        ask("2", "b", 2);
        ask("3", "c", 3);
        answered("3 busy");
        first.outcome.complete(Outcome.applied());
        called("apply", 2).outcome.complete(Outcome.applied());
        answered("1 applied", "2 applied");
        assertEquals(1, applier.counts().busy());
    }

    @Test
    void aLateCommand_isNotBegun_unlessALaterRequestGivesItTime() throws Exception {
        ask("x", "a", 1, 1, 0, ProposalType.TOWNSFOLK_TALK);
        answered("x refused DEADLINE_PASSED for now");
        ask("x", "a", 2);
        var before = called("apply", 2);
        ask("y", "a", 1, 2, 0, ProposalType.TOWNSFOLK_TALK);
        ask("y", "a", 1, 2, 60_000, ProposalType.TOWNSFOLK_TALK);
        answered("y busy");
        before.outcome.complete(Outcome.applied());
        called("apply", 1).outcome.complete(Outcome.applied());
        answered("x applied", "y applied");
    }

    @Test
    void aTypeThatIsNotAllowed_isRefusedForGood() throws Exception {
        ask("x", "a", 1, 1, 60_000, ProposalType.SALVAGE_PLAN);
        answered("x refused NOT_ALLOWED");
        quiet();
    }

    @Test
    void aCommandInDoubt_isRecovered() throws Exception {
        ask("x", "a", 1);
        called("apply", 1).outcome.completeExceptionally(new IllegalStateException("a bug"));
        answered("x in-progress");
        ask("x", "a", 1);
        called("recover", 1).outcome.complete(Outcome.unknown());
        answered("x in-progress");
        serve(true, 256, 16);
        ask("x", "a", 1);
        called("recover", 1).outcome.complete(Outcome.notBegun());
        answered("x busy");
        ask("x", "a", 1);
        called("apply", 1).outcome.complete(null);
        answered("x in-progress");
        ask("x", "a", 1);
        called("recover", 1).outcome.complete(Outcome.applied());
        answered("x applied");
        quiet();
    }

    @Test
    void withoutRecover_aCommandInDoubtIsRefusedForGood() throws Exception {
        serve(false, 256, 16);
        ask("x", "a", 1);
        called("apply", 1).outcome.completeExceptionally(new IllegalStateException("a bug"));
        answered("x refused OUTCOME_UNKNOWN");
        ask("x", "a", 1, 2);
        answered("x refused OUTCOME_UNKNOWN");
    }

    @Test
    void aSchedulerThatAcceptsNothing_leavesTheCommandNotBegun() throws Exception {
        game = task -> { throw new IllegalStateException("the plugin is disabled"); };
        ask("x", "a", 1);
        answered("x busy");
        game = Runnable::run;
        ask("x", "a", 1);
        called("apply", 1).outcome.complete(Outcome.applied());
        answered("x applied");
    }

    @Test
    void aSchedulerThatDropsATask_getsItAgain() throws Exception {
        var dropped = new LinkedBlockingQueue<Runnable>();
        game = dropped::add;
        ask("x", "a", 1);
        dropped.poll(10, TimeUnit.SECONDS);
        game = Runnable::run;
        called("apply", 1).outcome.complete(Outcome.applied());
        answered("x applied");
        quiet();
    }

    @Test
    void aFunctionThatDoesNotComplete_isLoggedOnce() throws Exception {
        var logged = new LinkedBlockingQueue<String>();
        logger.setUseParentHandlers(false);
        logger.setLevel(Level.WARNING);
        logger.addHandler(handler(logged));
        ask("x", "a", 1);
        var slow = called("apply", 1);
        assertTrue(String.valueOf(logged.poll(10, TimeUnit.SECONDS)).contains("has been applied for"));
        assertTrue(applier.counts().oldest().toMillis() >= 50);
        slow.outcome.complete(Outcome.applied());
        answered("x applied");
        assertEquals(0, logged.size());
        assertEquals(Duration.ZERO, applier.counts().oldest());
    }

    static Handler handler(Queue<String> logged) {
        return new Handler() {
            @Override
            public void publish(LogRecord record) { logged.add(record.getMessage()); }

            @Override
            public void flush() { }

            @Override
            public void close() { }
        };
    }

    @Test
    void membersThatTheEngineCannotRead_areLeftOut() throws Exception {
        JsonObject large = new JsonObject(), noNumber = new JsonObject(), deep = new JsonObject(), twice = new JsonObject();
        large.addProperty("text", "x".repeat(1 << 20));
        noNumber.addProperty("height", Double.NaN);
        deep.add("itself", deep);
        twice.addProperty("a", 1);
        twice.addProperty("A", 2);
        for (var bad : new JsonObject[] {large, noNumber, deep, twice}) {
            var outcome = Outcome.applied().withSnapshot(bad).withEmbodiment(bad).withArtifacts(java.util.List.of(bad));
            var answer = Json.object(Answer.of("id", outcome, Duration.ZERO, logger).wire());
            assertEquals(java.util.Set.of("schemaVersion", "applyId", "status"), answer.keySet());
        }
        var good = new JsonObject();
        good.addProperty("height", 1.5);
        var answer = Json.object(Answer.of("id", Outcome.applied().withSnapshot(good), Duration.ZERO, logger).wire());
        assertEquals(good, answer.get("snapshot"));
        ask("x", "a", 1);
        called("apply", 1).outcome.complete(Outcome.applied().withEmbodiment(noNumber));
        answered("x applied");
        ask("x", "a", 2);
        called("apply", 2).outcome.complete(Outcome.applied());
        answered("x applied");
    }

    @Test
    void aTypeOfANewerEngine_isRefused_unlessTheMemoryHasItsOutcome() throws Exception {
        String request = new String(request("a", 1, 1, 60_000, ProposalType.TOWNSFOLK_TALK), StandardCharsets.UTF_8);
        byte[] newer = request.replace(ProposalType.TOWNSFOLK_TALK.wire(), "DANCE").getBytes(StandardCharsets.UTF_8);
        var unknown = assertThrows(Command.UnknownType.class, () -> Command.parse(newer, null, null));
        applier.refuseUnknown(unknown.applyId, unknown.attempt, "x");
        answered("x refused NOT_ALLOWED");
        ask("x", "a", 1);
        called("apply", 1).outcome.complete(Outcome.applied());
        answered("x applied");
        applier.refuseUnknown(unknown.applyId, unknown.attempt, "x");
        answered("x applied");
    }

    @Test
    void close_answersWhatWaits_andWaitsForWhatIsBegun() throws Exception {
        ask("1", "a", 1);
        var begun = called("apply", 1);
        ask("2", "a", 2);
        var closed = CompletableFuture.supplyAsync(() -> applier.close(Duration.ofSeconds(10)));
        answered("2 busy");
        begun.outcome.complete(Outcome.applied());
        answered("1 applied");
        assertEquals(0, closed.get(1, TimeUnit.MINUTES));
        ask("3", "a", 3);
        answered("3 busy");
        serve(true, 256, 16);
        ask("2", "a", 2);
        called("apply", 2).outcome.complete(Outcome.applied());
        answered("2 applied");
    }

    @Test
    void aDiskThatFails_beginsNothing() throws Exception {
        memory.close();
        ask("x", "a", 1);
        answered("x refused MEMORY_FAILED for now");
        quiet();
    }

    @Test
    void theMainThread_isHeldForItsBudgetAlone() throws Exception {
        var ticks = new LinkedBlockingQueue<Runnable>();
        var mainThread = new MainThread(ticks::add, 1, Duration.ofMinutes(1), logger);
        var first = mainThread.call(() -> 1);
        var second = mainThread.call(() -> 2);
        assertEquals(1, ticks.size());
        ticks.remove().run();
        assertTrue(first.isDone());
        assertTrue(!second.isDone(), "the budget was over");
        ticks.remove().run();
        assertEquals(2, second.get());
        @Nullable CompletableFuture<Integer> third = mainThread.call(() -> 3);
        mainThread.close();
        assertTrue(third.isCompletedExceptionally());
    }
}
