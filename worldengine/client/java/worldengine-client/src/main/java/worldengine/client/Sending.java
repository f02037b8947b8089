package worldengine.client;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.Executors;
import org.jspecify.annotations.Nullable;
import worldengine.client.contract.ErrorCode;
import worldengine.client.contract.Verb;

/** Sends one handoff: until it is answered, or until a person has decided. */
final class Sending {
    /** The longest wait for a decision before the handoff is sent again. */
    private static final Duration APPROVAL_PAUSE = Duration.ofMinutes(1);
    private static final Duration LOOK = Duration.ofSeconds(2);

    private final WorldEngine engine;
    private final Handoff handoff;
    private final Call call;

    Sending(WorldEngine engine, Handoff handoff, Call call) {
        this.engine = engine;
        this.handoff = handoff;
        this.call = call;
    }

    Outcome send() {
        var outcome = once(false, new Ending());
        if (call.approvalWait().isZero() || !isUndecided(outcome)) return outcome;
        var ending = new Ending();
        var timer = Executors.newSingleThreadScheduledExecutor(task -> {
            var thread = new Thread(task, "worldengine-approval-wait");
            thread.setDaemon(true);
            return thread;
        });
        try {
            timer.schedule(ending::end, call.approvalWait().toMillis(), java.util.concurrent.TimeUnit.MILLISECONDS);
            return decided(outcome, ending);
        } finally {
            timer.shutdownNow();
        }
    }

    private Outcome decided(Outcome first, Ending ending) {
        var outcome = first;
        call.onApproval().accept(outcome.result());
        var log = new Follow.Pages(engine, handoff.townId(), null);
        next(log, ending); // the end of the log; the decision may be before it
        for (boolean again = false; isUndecided(outcome) && !ending.ended(); again = true) {
            if (again) decision(log, ending);
            outcome = Objects.requireNonNullElse(again(ending), outcome);
            if (again && isUndecided(outcome) && !ending.ended()) call.onApproval().accept(outcome.result());
        }
        return outcome;
    }

    private static boolean isUndecided(Outcome outcome) {
        return outcome.result().reasonCode().equals("APPROVAL_REQUIRED");
    }

    /** Sends the handoff, which was sent before, until the server answers; null if the wait is over. */
    private @Nullable Outcome again(Ending ending) {
        while (!ending.ended()) {
            try {
                return once(true, ending);
            } catch (EngineException e) {
                if (ending.ended()) break;
                if (!Follow.isAway(e) || engine.closing().ended()) throw e;
                Follow.pause(engine, ending, Duration.ofSeconds(1));
            }
        }
        return null;
    }

    /** Follows the log until there is a decision about the handoff, or for a minute. */
    private void decision(Follow.Pages log, Ending ending) {
        long until = System.nanoTime() + APPROVAL_PAUSE.toNanos();
        for (long left; (left = until - System.nanoTime()) > 0 && !ending.ended();) {
            var page = next(log, ending);
            if (page == null) {
                Follow.pause(engine, ending, Duration.ofNanos(left));
                return;
            }
            boolean decided = page.commits().stream().flatMap(commit -> commit.events().stream()).anyMatch(event ->
                event.eventType().equals("SignalAccepted")
                    && handoff.handoffId().equals(Json.text(event.payload(), "handoffId")));
            if (decided) return;
        }
    }

    /** The next page; null if the user may not read the events of the town. */
    private Follow.@Nullable Page next(Follow.Pages log, Ending ending) {
        try {
            return log.apply(ending);
        } catch (ReplyException e) {
            return null;
        }
    }

    /** Sends the handoff until it is answered; {@code again} means that it was sent before. */
    private Outcome once(boolean again, Ending ending) {
        var answer = engine.ask(Verb.HANDOFF, handoff.json(), call, ending, this::absent, refused -> {
            if (ErrorCode.WAIT_REASONS.contains(refused.code())) call.onPaused().accept(refused);
        });
        var result = WorldEngine.verified(WorldEngine.object(answer.message()), call.revision());
        String runId = Objects.requireNonNullElse(Exchange.header(answer.message(), "Run-Id"), "");
        var first = (answer.doubt() || again) && result.status().equals("duplicate") ? first(result) : null;
        return first == null ? new Outcome(result, runId, null) : new Outcome(first.result(), first.runId(), result);
    }

    /** Returns the result that a duplicate names, if it is of this handoff; else the duplicate is the answer. */
    private @Nullable Outcome first(Result duplicate) {
        try {
            var first = engine.result(handoff.idempotencyKey(), handoff.townId(), call);
            boolean same = first.result().resultId().equals(duplicate.duplicateOf())
                && handoff.handoffId().equals(Json.text(first.result().json(), "handoffId"));
            return same ? first : null;
        } catch (EngineException e) {
            return null;
        }
    }

    /** Returns an error if the handoff waits for an absent game. */
    private @Nullable UnavailableException absent() {
        var town = engine.request(Verb.TOWN_GET, Json.of("townId", handoff.townId()), Call.DEFAULT.withTimeout(LOOK));
        String run = Json.text(town, "pendingRunId"), since = Json.text(town, "pluginAbsentSince");
        if (run == null || since == null) return null;
        return new UnavailableException(UnavailableException.PLUGIN_ABSENT, "the town \"" + handoff.townId()
            + "\" has had no plugin since " + since + ", and the handoff is the command of run " + run
            + " or waits behind it; sent again it gets its result");
    }
}
