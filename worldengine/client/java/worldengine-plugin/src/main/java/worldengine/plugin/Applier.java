package worldengine.plugin;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiConsumer;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;
import worldengine.client.contract.ProposalType;

/**
 * Applies commands: one of a town at a time, in the order of their arrival, each at most once.
 *
 * <pre>
 * request ─ known? → answer │ job of its town → begin on disk → main thread → done on disk → answers
 * </pre>
 *
 * <p>The record of the beginning must be on the disk before the author's function is called, and the record of
 * the outcome before it is answered. Nothing here blocks: requests come on the network's thread, and a job goes on
 * where its last step ended.
 */
final class Applier {
    /** So many reply subjects get a command's outcome: the last ones. */
    private static final int MOST_WAITERS = 16;

    private static final Duration SLOW = Duration.ofMinutes(1);

    /** The author's functions, and the bounds. */
    record Config(AsyncFunction apply, @Nullable AsyncFunction recover, Set<ProposalType> allowed, int queue,
            int concurrency, Duration retryAfter, Duration slow, Logger logger) {
        Config(AsyncFunction apply, @Nullable AsyncFunction recover, Set<ProposalType> allowed, int queue, int concurrency,
                Duration retryAfter, Logger logger) {
            this(apply, recover, allowed, queue, concurrency, retryAfter, SLOW, logger);
        }
    }

    /** A function of the author; it is called on the main thread. */
    interface AsyncFunction {
        CompletionStage<Outcome> call(Command command) throws Exception;
    }

    /** A request; {@code until} is when its time is over, by System.nanoTime. */
    private record Request(Command command, String reply, long until) {}

    /** A request that waits for the outcome; {@code interim} if it was answered before. */
    private record Waiter(String reply, long attempt, boolean interim) {
        /** A refusal for now is for its own attempt; after an interim answer only a definite one follows. */
        boolean gets(Answer answer, long attempt) {
            return (!answer.retryable() || this.attempt == attempt) && (!interim || answer.definite());
        }
    }

    /** A command that waits for its turn or is being applied. */
    private static final class Job {
        Request request; // of those before its turn, the one whose time is over last
        boolean begun;
        long since; // when it was begun, by System.nanoTime
        final Deque<Waiter> waiters = new ArrayDeque<>();

        Job(Request request) { this.request = request; }
    }

    private final Config config;
    private final Memory memory;
    private final MainThread mainThread;
    private final BiConsumer<String, byte[]> send; // to a reply subject
    private final Map<String, Job> jobs = new HashMap<>(); // by applyId
    private final Map<String, Queue<Job>> towns = new HashMap<>(); // the first job has the turn
    private final Queue<Job> turns = new ArrayDeque<>(); // first jobs of their towns that wait for a slot
    private final Map<String, Memory.Record> unwritten = new HashMap<>(); // records that the disk refused
    private final CompletableFuture<Void> idle = new CompletableFuture<>();
    private int running;
    private boolean closing;
    private long applied, refused, repeated, busy;

    Applier(Config config, Memory memory, MainThread mainThread, BiConsumer<String, byte[]> send) {
        this.config = config;
        this.memory = memory;
        this.mainThread = mainThread;
        this.send = send;
    }

    /** Counts since the start; {@code waiting} are the commands in hand, {@code oldest} the age of the first begun. */
    record Counts(int waiting, long applied, long refused, long repeated, long busy, Duration oldest) {}

    synchronized Counts counts() {
        long now = System.nanoTime();
        long oldest = jobs.values().stream().filter(job -> job.begun).mapToLong(job -> now - job.since).max().orElse(0);
        return new Counts(jobs.size(), applied, refused, repeated, busy, Duration.ofNanos(oldest));
    }

    /** Receives a request that arrived now. It does not wait. Without {@code serving} no command is begun for it. */
    void request(Command command, String reply, boolean serving) {
        KillPoint.ARRIVED.reached();
        var request = new Request(command, reply,
            System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Math.min(command.timeoutMs(), 86_400_000)));
        Answer answer;
        synchronized (this) {
            answer = admit(request, serving);
        }
        if (answer != null) send.accept(reply, answer.wire());
        next();
    }

    /** Refuses a command of a type that this version does not know, unless the memory has it from a newer one. */
    void refuseUnknown(String applyId, long attempt, String reply) {
        Memory.Record record;
        synchronized (this) {
            record = recall(applyId);
        }
        var answer = record == null ? null : record.answerTo(attempt);
        if (answer == null && record != null && record.begun()) {
            answer = Answer.later(applyId, Answer.IN_PROGRESS, config.retryAfter);
        } else if (answer == null) {
            answer = refuse(applyId, Outcome.refused("NOT_ALLOWED",
                "This game server's plugin does not know such commands: update it."));
        }
        send.accept(reply, answer.wire());
    }

    /** Adds a request to its job, or a job to its town. It returns the answer if there is one at once. */
    private @Nullable Answer admit(Request request, boolean serving) {
        var command = request.command;
        var job = jobs.get(command.applyId());
        if (job != null) return later(command, join(job, request));
        var record = recall(command.applyId());
        var known = record == null ? null : record.answerTo(command.attempt());
        if (known != null) {
            repeated++;
            return known;
        }
        if (closing || !serving || jobs.size() >= config.queue) return later(command, Answer.BUSY);
        job = new Job(request);
        job.waiters.add(new Waiter(request.reply, command.attempt(), false));
        jobs.put(command.applyId(), job);
        var queue = towns.computeIfAbsent(command.townId(), town -> new ArrayDeque<>());
        queue.add(job);
        if (queue.size() == 1) turns.add(job);
        return null;
    }

    private synchronized Answer later(Command command, String status) {
        if (status.equals(Answer.BUSY)) busy++;
        return Answer.later(command.applyId(), status, config.retryAfter);
    }

    /** Adds a repeated request to a job, and returns the status of its interim answer. */
    private static String join(Job job, Request request) {
        // All requests of an attempt have one reply subject, which gets one outcome.
        job.waiters.removeIf(waiter -> waiter.reply.equals(request.reply));
        job.waiters.add(new Waiter(request.reply, request.command.attempt(), true));
        if (job.waiters.size() > MOST_WAITERS) job.waiters.remove();
        if (job.begun) return Answer.IN_PROGRESS;
        if (request.until - job.request.until > 0) job.request = request;
        return Answer.BUSY;
    }

    /** Starts the jobs whose turn it is. */
    private void next() {
        for (Job job; (job = turn()) != null;) {
            var begun = job;
            CompletableFuture<@Nullable Answer> outcome;
            try {
                outcome = outcome(job.request);
            } catch (RuntimeException | Error e) {
                outcome = CompletableFuture.failedFuture(e);
            }
            outcome.whenComplete((answer, error) -> finish(begun, answer, error));
        }
    }

    private synchronized @Nullable Job turn() {
        if (running >= config.concurrency || turns.isEmpty()) return null;
        running++;
        var job = turns.remove();
        job.begun = true;
        job.since = System.nanoTime();
        return job;
    }

    /** Applies a command at most once; null if there is no answer. */
    private CompletableFuture<@Nullable Answer> outcome(Request request) {
        var command = request.command;
        Memory.Record before;
        boolean ending;
        synchronized (this) {
            before = recall(command.applyId());
            ending = closing;
        }
        boolean begun = before != null && before.begun();
        if (ending) return done(later(command, begun ? Answer.IN_PROGRESS : Answer.BUSY));
        if (begun) return recover(command);
        if (System.nanoTime() - request.until >= 0) {
            return remember(command, refuse(command, Outcome.refusedForNow("DEADLINE_PASSED",
                "The command's time was over before its turn came.")));
        }
        if (!config.allowed.contains(command.type())) {
            return remember(command, refuse(command, Outcome.refused("NOT_ALLOWED",
                "This game server does not allow such commands.")));
        }
        return memory.put(record(command, null)).handle((written, error) -> error).thenCompose(error -> {
            if (error == null) {
                KillPoint.BEGUN.reached();
                return call(config.apply, command);
            }
            config.logger.log(Level.SEVERE, "the plugin's memory cannot be written, so a command is not begun: "
                + command.applyId(), error);
            return done(refuse(command, Outcome.refusedForNow("MEMORY_FAILED", "The plugin's memory cannot be written.")));
        });
    }

    private CompletableFuture<@Nullable Answer> recover(Command command) {
        if (config.recover != null) return call(config.recover, command);
        return inDoubt(command, new IllegalStateException("it was begun before, and there is no recover function"));
    }

    /** Calls a function of the author, and remembers its outcome. */
    private CompletableFuture<@Nullable Answer> call(AsyncFunction function, Command command) {
        var called = mainThread.call(() -> function.call(command)).thenCompose(stage -> stage);
        warnIfSlow(command, called);
        return called.handle((outcome, error) -> {
            var cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
            if (cause instanceof MainThread.NotRun) return notRun(function, command);
            KillPoint.APPLIED.reached();
            if (cause != null) return inDoubt(command, cause);
            var answer = outcome == null ? null : Answer.of(command.applyId(), outcome, config.retryAfter,
                config.logger);
            if (answer == null) return inDoubt(command, new IllegalStateException("the function returned " + outcome));
            return remember(command, answer);
        }).thenCompose(next -> next);
    }

    private void warnIfSlow(Command command, CompletableFuture<Outcome> called) {
        called.copy().orTimeout(config.slow.toMillis(), TimeUnit.MILLISECONDS).whenComplete((outcome, error) -> {
            if (error instanceof TimeoutException) { // an exception of the function is in a CompletionException
                config.logger.warning("a command has been applied for " + config.slow.toSeconds() + " s, and its town waits: "
                    + command.applyId() + ", " + command.type() + " for the town " + SafeText.line(command.townId(), 64)
                    + "; does the function complete its future in every case?");
            }
        });
    }

    /** The function was not called. What was begun by this call is not in the game; what was in doubt still is. */
    private CompletableFuture<@Nullable Answer> notRun(AsyncFunction function, Command command) {
        return function == config.apply ? remember(command, later(command, Answer.BUSY))
            : done(later(command, Answer.IN_PROGRESS));
    }

    /** The command stays begun, and the next request calls recover; without that it is refused for good. */
    private CompletableFuture<@Nullable Answer> inDoubt(Command command, Throwable why) {
        config.logger.log(Level.SEVERE, "it is not known whether a command is applied: " + command.applyId() + " of run "
            + command.runId() + ", " + command.type() + " for the town " + SafeText.line(command.townId(), 64), why);
        if (config.recover != null) return done(later(command, Answer.IN_PROGRESS));
        return remember(command, refuse(command, Outcome.refused("OUTCOME_UNKNOWN", "The plugin began this command and "
            + "does not know whether it is in the game: compare, and town.put the true state.")));
    }

    /** Writes the outcome to the memory. If that fails, it is in doubt for the next process, but not for this one. */
    private CompletableFuture<@Nullable Answer> remember(Command command, Answer answer) {
        var record = record(command, answer);
        return memory.put(record).handle((written, error) -> {
            synchronized (this) {
                if (error == null) unwritten.remove(command.applyId());
                else unwritten.put(command.applyId(), record);
            }
            if (error == null) {
                KillPoint.DONE.reached();
            } else {
                config.logger.log(Level.SEVERE, "the outcome of a command cannot be written to the plugin's memory: "
                    + command.applyId() + " is " + answer.status(), error);
            }
            return answer;
        });
    }

    /** Ends a job, answers its requests, and gives the town's turn to its next job. */
    private void finish(Job job, @Nullable Answer answer, @Nullable Throwable error) {
        var command = job.request.command;
        if (error != null) config.logger.log(Level.SEVERE, "a command failed in the kit: " + command.applyId(), error);
        List<Waiter> waiters;
        synchronized (this) {
            waiters = new ArrayList<>(job.waiters);
            jobs.remove(command.applyId());
            running--;
            var queue = towns.get(command.townId());
            queue.remove();
            if (queue.isEmpty()) towns.remove(command.townId());
            else turns.add(queue.element());
            if (answer != null && answer.status().equals(Answer.APPLIED)) applied++;
            if (answer != null && answer.status().equals(Answer.REFUSED)) refused++;
            if (closing && jobs.isEmpty()) idle.complete(null);
        }
        for (var waiter : waiters) {
            if (answer != null && waiter.gets(answer, command.attempt())) send.accept(waiter.reply, answer.wire());
        }
        KillPoint.ANSWERED.reached();
        next();
    }

    /** Begins no more commands, and waits for those that are begun. It returns how many are not finished by then. */
    int close(Duration wait) {
        List<Job> waiting;
        synchronized (this) {
            closing = true;
            waiting = jobs.values().stream().filter(job -> !job.begun).toList();
            waiting.forEach(job -> jobs.remove(job.request.command.applyId()));
            turns.clear();
            towns.values().forEach(queue -> queue.removeAll(waiting));
            towns.values().removeIf(Queue::isEmpty);
            if (jobs.isEmpty()) idle.complete(null);
        }
        for (var job : waiting) {
            var busy = later(job.request.command, Answer.BUSY);
            job.waiters.stream().filter(waiter -> !waiter.interim).forEach(w -> send.accept(w.reply, busy.wire()));
        }
        mainThread.close();
        try {
            idle.get(wait.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (TimeoutException | java.util.concurrent.ExecutionException e) { // counted below
        }
        synchronized (this) {
            return jobs.size();
        }
    }

    private Memory.@Nullable Record recall(String applyId) {
        var record = unwritten.get(applyId);
        return record != null ? record : memory.get(applyId);
    }

    private static Memory.Record record(Command command, @Nullable Answer answer) {
        return new Memory.Record(command.applyId(), command.townId(), command.attempt(), Instant.now(), answer);
    }

    private Answer refuse(Command command, Outcome refused) { return refuse(command.applyId(), refused); }

    private Answer refuse(String applyId, Outcome refused) {
        var answer = Answer.of(applyId, refused, config.retryAfter, config.logger);
        if (answer == null) throw new AssertionError(refused);
        return answer;
    }

    private static CompletableFuture<@Nullable Answer> done(Answer answer) {
        return CompletableFuture.completedFuture(answer);
    }
}
