package worldengine.client;

import com.google.gson.JsonObject;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import worldengine.client.contract.ErrorCode;
import worldengine.client.contract.EventType;
import worldengine.client.contract.Verb;

/** Follows the log of a world: pages of its commits from a cursor, and the events and changes in them. */
final class Follow {
    /** How long the server waits for a commit, and the least pause before an unavailable server is asked again. */
    private static final int WAIT_MS = 10_000, AWAY_MS = 1000;
    private static final Set<String> ENDS = Set.of("COMPLETED", "FAILED", "CANCELLED");

    private Follow() {}

    /** A page of commits; {@code lost} is the reason if commits before it may be missing. */
    record Page(List<Commit> commits, String cursor, @Nullable String lost) {}

    /**
     * The pages after a cursor. Without a cursor the first page is empty. If the log does not have a cursor that the
     * server gave, following continues at the end of the log; an error about the caller's cursor is thrown.
     */
    static final class Pages implements Function<Ending, @Nullable Page> {
        private final WorldEngine engine;
        private final @Nullable String townId;
        private @Nullable String cursor;
        private boolean isOwn;
        private @Nullable String lost;

        Pages(WorldEngine engine, @Nullable String townId, @Nullable String after) {
            this.engine = engine;
            this.townId = townId;
            cursor = after;
            isOwn = after != null;
        }

        @Override
        public @Nullable Page apply(Ending ending) {
            JsonObject reply;
            try {
                reply = patiently(engine, Verb.EVENT_LIST,
                    Json.of("after", cursor, "townId", townId, "waitMs", WAIT_MS), ending);
            } catch (ReplyException e) {
                if (isOwn || !e.code().equals(ErrorCode.INVALID_CURSOR)) throw e;
                cursor = null;
                lost = "INVALID_CURSOR";
                return apply(ending);
            }
            if (reply == null) return null;
            if (Json.isTrue(reply, "gap") && !"0".equals(cursor)) lost = "GAP";
            String next = Objects.requireNonNullElse(Json.text(reply, "cursor"), "");
            var page = new Page(Json.list(reply, "commits", Commit::read), next, lost);
            cursor = next;
            isOwn = false;
            lost = null;
            return page;
        }
    }

    static Following<Commit> commits(WorldEngine engine, @Nullable String townId, @Nullable String after,
            Consumer<Loss> onLost) {
        return select(engine, townId, after, onLost, List::of);
    }

    static Following<RunEvent> events(WorldEngine engine, @Nullable String townId, @Nullable String after,
            Consumer<Loss> onLost) {
        return select(engine, townId, after, onLost, Commit::events);
    }

    static Following<Commit> changes(WorldEngine engine, @Nullable String townId, @Nullable String after,
            Consumer<Loss> onLost) {
        return select(engine, townId, after, onLost, commit ->
            commit.json().has("revision") && commit.json().has("events") && commit.events().isEmpty()
                ? List.of(commit) : List.of());
    }

    private static <T> Following<T> select(WorldEngine engine, @Nullable String townId, @Nullable String after,
            Consumer<Loss> onLost, Function<Commit, List<T>> selected) {
        var pages = new Pages(engine, townId, after);
        return new Following<>(ending -> {
            var page = pages.apply(ending);
            if (page == null) return null;
            if (page.lost != null) onLost.accept(new Loss(page.lost, page.cursor));
            var some = new ArrayList<T>();
            for (var commit : page.commits) {
                if (commit.damaged()) onLost.accept(new Loss("DAMAGED", commit.cursor()));
                some.addAll(selected.apply(commit));
            }
            return some;
        });
    }

    static Following<RunEvent> run(WorldEngine engine, String runId, long afterSeq) {
        if (!runId.matches("[^|]{1,256}")) throw new IllegalArgumentException("no run has the id \"" + runId + '"');
        return new Following<>(new OneRun(engine, runId, afterSeq));
    }

    /** The events of one run, to its end. */
    private static final class OneRun implements Function<Ending, @Nullable List<RunEvent>> {
        private final WorldEngine engine;
        private final String runId;
        private long last;
        private boolean ended;
        private @Nullable Pages pages;

        OneRun(WorldEngine engine, String runId, long afterSeq) {
            this.engine = engine;
            this.runId = runId;
            last = afterSeq;
        }

        @Override
        public @Nullable List<RunEvent> apply(Ending ending) {
            if (ended) return null;
            return pages == null ? present(ending) : following(pages, ending);
        }

        /** The present events. The cursor comes first, so that no commit falls between it and them. */
        private @Nullable List<RunEvent> present(Ending ending) {
            var end = patiently(engine, Verb.EVENT_LIST, new JsonObject(), ending);
            var run = end == null ? null : patiently(engine, Verb.RUN_GET, Json.of("runId", runId), ending);
            if (end == null || run == null) return null;
            var some = new ArrayList<RunEvent>();
            missing(some, ending);
            var state = Run.read(run);
            ended |= ENDS.contains(state.status()) && last >= state.lastEventSeq();
            pages = new Pages(engine, townOf(run), Json.text(end, "cursor"));
            return some;
        }

        private List<RunEvent> following(Pages pages, Ending ending) {
            var some = new ArrayList<RunEvent>();
            var page = pages.apply(ending);
            if (page == null) {
                ended = true;
                return some;
            }
            var came = page.commits.stream().flatMap(commit -> commit.events().stream())
                .filter(event -> event.runId().equals(runId)).toList();
            long before = last;
            boolean skips = false;
            for (var event : came) {
                skips |= event.runSeq() > before + 1;
                before = event.runSeq();
            }
            if (page.lost != null || skips || page.commits.stream().anyMatch(Commit::damaged)) missing(some, ending);
            keep(came, some);
            return some;
        }

        /** Reads the server's events that were not read before. */
        private void missing(List<RunEvent> some, Ending ending) {
            for (long all = Long.MAX_VALUE; last < all;) {
                var page = patiently(engine, Verb.RUN_EVENTS, Json.of("runId", runId, "afterSeq", last), ending);
                var events = page == null ? List.<RunEvent>of() : Json.list(page, "events", RunEvent::read);
                if (page == null || events.isEmpty()) return;
                keep(events, some);
                all = Json.integer(page, "lastEventSeq", last);
            }
        }

        private void keep(List<RunEvent> events, List<RunEvent> some) {
            for (var event : events) {
                if (event.runSeq() <= last) continue;
                last = event.runSeq();
                ended |= EventType.named(event.eventType()).map(EventType::endsRun).orElse(false);
                some.add(event);
            }
        }

        /** The run's town; null for another producer's run, whose start may name any town. */
        private static @Nullable String townOf(JsonObject run) {
            var metadata = Json.child(run, "metadata");
            if (metadata == null || metadata.has("appendedBy")) return null;
            var started = Json.child(metadata, "started");
            return started == null ? null : Json.text(started, "townId");
        }
    }

    /** Asks a verb until the server answers; null if the follower or the client has ended it. */
    private static @Nullable JsonObject patiently(WorldEngine engine, Verb verb, JsonObject body, Ending ending) {
        for (;;) {
            try {
                return engine.request(verb, body, Call.DEFAULT, ending);
            } catch (EngineException e) {
                if (ending.ended() || engine.closedByCaller()) return null;
                if (engine.closing().ended() || !isAway(e)) throw e;
                long asked = e instanceof ReplyException reply ? reply.retryAfter().toMillis() : 0;
                pause(engine, ending, Duration.ofMillis(Math.max(AWAY_MS, asked)));
            }
        }
    }

    /** Returns whether a repetition may help after an error. */
    static boolean isAway(EngineException e) {
        return e instanceof ReplyException reply ? reply.status() == 429 || reply.status() == 503
            : Set.of("TIMEOUT", "NO_RESPONDERS", "CONNECTION").contains(e.code());
    }

    /** Waits, at most until an end of the follower or of the connection. */
    static void pause(WorldEngine engine, Ending ending, Duration time) {
        var over = new CountDownLatch(1);
        Runnable off = engine.closing().onEnd(over::countDown), offToo = ending.onEnd(over::countDown);
        try {
            over.await(time.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new UnavailableException(UnavailableException.ABORTED, "given up by an interrupt", e);
        } finally {
            off.run();
            offToo.run();
        }
    }
}
