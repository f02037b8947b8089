package worldengine.client;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import io.nats.client.Connection;
import io.nats.client.ConnectionListener.Events;
import io.nats.client.ErrorListener;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.impl.Headers;
import java.io.IOException;
import java.time.Duration;
import java.util.Iterator;
import java.util.Objects;
import java.util.Set;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.jspecify.annotations.Nullable;
import worldengine.client.contract.Verb;

/**
 * A client of one world over one connection, safe for concurrent use. It reconnects until it is closed.
 *
 * <p>Calls block: do not call them on a game's main thread. They repeat a request if that can help: after 429
 * and 503, and with the same bytes after silence. A handoff may always be repeated, because a town accepts a
 * key once. A change without a key ({@code putTown}, {@code patchTown}, {@code decide}) is not repeated if it
 * may have been carried out. They throw an {@link EngineException}; an interrupt ends them with the code
 * {@code ABORTED}.
 */
public final class WorldEngine implements AutoCloseable {
    private static final Duration CALL = Duration.ofSeconds(30), DRAIN = Duration.ofSeconds(5);

    private final String world;
    private final Connection connection;
    private final ExecutorService executor = Executors.newCachedThreadPool(task -> {
        var thread = new Thread(task, "worldengine-client");
        thread.setDaemon(true);
        return thread;
    });
    private final Ending closing = new Ending();
    private final Set<Runnable> reconnects = ConcurrentHashMap.newKeySet();
    private final Set<Consumer<String>> denials = ConcurrentHashMap.newKeySet();
    private volatile boolean served, closedByCaller;

    private WorldEngine(ConnectionSettings settings, String world, String name) throws InterruptedException, IOException {
        this.world = checkedWorld(world);
        connection = Nats.connect(settings.options(name)
            .connectionListener((c, event) -> happened(event))
            .errorListener(new ErrorListener() {
                @Override
                public void errorOccurred(Connection c, String error) {
                    if (isDenial(error)) denials.forEach(listener -> listener.accept(error));
                }
            }).build());
    }

    /**
     * Connects to the world {@code main} of a server, with the other settings of the environment:
     * {@code connect("nats://127.0.0.1:4222")}.
     */
    public static WorldEngine connect(String servers) {
        return connect(ConnectionSettings.fromEnvironment().withServers(servers), "main");
    }

    /** Connects to a world. If the first connection fails, it throws an UnavailableException. */
    public static WorldEngine connect(ConnectionSettings settings, String world) {
        return connect(settings, world, "worldengine-client");
    }

    /** Connects to a world, with a name of the connection that operators see. */
    public static WorldEngine connect(ConnectionSettings settings, String world, String name) {
        try {
            return new WorldEngine(settings, world, name);
        } catch (IOException e) {
            // Without the cause, whose message has the secrets of a URL.
            throw new UnavailableException(UnavailableException.CONNECTION, "cannot connect to " + settings + ": "
                + ConnectionSettings.withoutSecrets(String.valueOf(e.getMessage()))
                + "; start handoffd, or give its address, its user and its password");
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new UnavailableException(UnavailableException.ABORTED, "given up by an interrupt", e);
        }
    }

    /** Returns the world's name, or throws an {@link IllegalArgumentException}. */
    public static String checkedWorld(String world) {
        if (world.matches("[A-Za-z0-9_-]{1,64}")) return world;
        throw new IllegalArgumentException("a world's name is 1 to 64 of A-Z a-z 0-9 _ -, not \"" + world + '"');
    }

    private void happened(Events event) {
        if (event == Events.RECONNECTED) reconnects.forEach(Runnable::run);
        if (event == Events.CLOSED) closing.end();
    }

    private static boolean isDenial(String error) {
        return error.toLowerCase(java.util.Locale.ROOT).contains("permissions violation");
    }

    /** Closes the connection after sent messages have left, if the server is there. Waiting calls fail. */
    @Override
    public void close() {
        closedByCaller = true;
        closing.end();
        executor.shutdownNow();
        try {
            if (connection.getStatus() == Connection.Status.CONNECTED) connection.flush(DRAIN);
        } catch (java.util.concurrent.TimeoutException | IllegalStateException e) {
            // the server is away: nothing can leave
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        try {
            connection.close();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    // Towns.

    /** Returns a town. */
    public Town town(String townId) { return Town.read(request(Verb.TOWN_GET, Json.of("townId", townId))); }

    /** Iterates over the towns, page by page; the filters are members of town.list, such as {@code text}. */
    public Stream<Town> towns(JsonObject filters) { return rows(Verb.TOWN_LIST, "towns", filters, Town::read); }

    /** Iterates over all towns. */
    public Stream<Town> towns() { return towns(new JsonObject()); }

    /** Iterates over the worlds of the server that the user may use: worlds of a worlds-list-reply.v1. */
    public Stream<JsonObject> worlds() {
        return rows(Verb.WORLDS_LIST, "worlds", new JsonObject(), world -> world);
    }

    /**
     * Returns the memory of a town, or of the world if it is null: a world-memory-context.v1.
     *
     * @param chronicle how many entries of the chronicle, 1 to 5
     * @param history how many entries of the history, 1 to 5
     */
    public JsonObject memory(@Nullable String townId, int chronicle, int history) {
        var scope = Json.of("chronicleLimit", chronicle, "historyLimit", history);
        scope.addProperty("townId", townId);
        scope.addProperty("factionId", (String) null);
        return request(Verb.MEMORY_GET, Json.of("type", "world-memory-request.v1", "schemaVersion", 1, "scope", scope));
    }

    /** Creates a town. */
    public Town putTown(JsonObject snapshot) {
        return Town.read(request(Verb.TOWN_PUT, Json.of("snapshot", snapshot)));
    }

    /** Replaces exactly the state of a town with this hash; 409 SNAPSHOT_CONFLICT if it has another one. */
    public Town putTown(JsonObject snapshot, String expectedSnapshotHash) {
        return Town.read(request(Verb.TOWN_PUT,
            Json.of("snapshot", snapshot, "expectedSnapshotHash", expectedSnapshotHash)));
    }

    /** Changes members of exactly the state with this hash, by a JSON Merge Patch; a list is replaced as a whole. */
    public Town patchTown(String townId, JsonObject patch, String expectedSnapshotHash) {
        return Town.read(request(Verb.TOWN_PATCH,
            Json.of("townId", townId, "patch", patch, "expectedSnapshotHash", expectedSnapshotHash)));
    }

    /** Removes a town, and returns its last state and the revision of the removal. Operators may call it. */
    public JsonObject removeTown(String townId) { return request(Verb.TOWN_REMOVE, Json.of("townId", townId)); }

    // Handoffs and results.

    /**
     * Sends a handoff until it is answered, and verifies the result. If an attempt of this call was accepted and
     * its answer was lost, the next attempt is a duplicate, and this returns the first result.
     *
     * <p>It throws an UnavailableException with TOWN_PAUSED, WORLD_PAUSED or PLUGIN_ABSENT if the handoff waits
     * for that when the call ends, and a ReplyException with EXECUTION_IN_PROGRESS and the run if the handoff is
     * accepted and its command waits for the game. Send the same handoff again then.
     */
    public Outcome send(Handoff handoff) { return send(handoff, Call.DEFAULT); }

    /** Sends a handoff with other options than the defaults; with a wait for an approval it sends it again. */
    public Outcome send(Handoff handoff, Call call) { return new Sending(this, handoff, call).send(); }

    /** Sends a handoff on a thread of the client. To cancel the future is to give up the call. */
    public CompletableFuture<Outcome> sendAsync(Handoff handoff, Call call) { return async(() -> send(handoff, call)); }

    /**
     * Returns the result that a handoff would get now; the server stores nothing. If a game would apply the
     * command, the rules predict the result.
     */
    public Result dryRun(Handoff handoff) {
        var answer = ask(Verb.HANDOFF, handoff.json(), Call.DEFAULT.withHeader("Dry-Run", "true"), new Ending());
        var result = verified(object(answer.message()), null);
        if (!"true".equals(Exchange.header(answer.message(), "Dry-Run"))) {
            throw new UnavailableException(UnavailableException.INVALID_ANSWER, "this server does not know dry runs: it "
                + "carried the handoff out as run " + Exchange.header(answer.message(), "Run-Id"));
        }
        return result;
    }

    /**
     * Returns the result of the handoff that a town accepted with a key.
     *
     * @param townId null means the last town that accepted the key
     */
    public Outcome result(String idempotencyKey, @Nullable String townId) {
        return result(idempotencyKey, townId, Call.DEFAULT);
    }

    Outcome result(String idempotencyKey, @Nullable String townId, Call call) {
        var found = request(Verb.RESULT_GET, Json.of("idempotencyKey", idempotencyKey, "townId", townId), call);
        var result = Json.child(found, "result");
        return new Outcome(verified(result == null ? new JsonObject() : result, call.revision()),
            Objects.requireNonNullElse(Json.text(found, "runId"), ""), null);
    }

    // Runs and events.

    /** Returns a run. */
    public Run run(String runId) { return Run.read(request(Verb.RUN_GET, Json.of("runId", runId))); }

    /** Iterates over runs, the newest first; the filters are members of run.list, such as {@code townId}. */
    public Stream<Run> runs(JsonObject filters) { return rows(Verb.RUN_LIST, "runs", filters, Run::read); }

    /** Follows the events of one run, to its end. It survives losses of the connection. */
    public Following<RunEvent> eventsOfRun(String runId) { return Follow.run(this, runId, 0); }

    /** Follows the run events of a town, or of all towns with null, from the next one on, each once. */
    public Following<RunEvent> events(@Nullable String townId) { return events(townId, null, loss -> {}); }

    /**
     * Follows run events after a cursor of a commit; see {@link #commits}.
     *
     * @param after null means the next ones
     */
    public Following<RunEvent> events(@Nullable String townId, @Nullable String after, Consumer<Loss> onLost) {
        return Follow.events(this, townId, after, onLost);
    }

    /**
     * Follows the commits of the log, each once and in order, through losses of the connection. A reader keeps the
     * cursor of its last commit, and goes on with it after a restart.
     *
     * @param townId null means all towns that the user may read
     * @param after a cursor, "0" for the oldest commit, or null for the next commit
     * @param onLost is called if commits may be missing; following goes on. If the log does not have {@code after}
     *     at the beginning, the iterator throws a ReplyException with the code INVALID_CURSOR
     */
    public Following<Commit> commits(@Nullable String townId, @Nullable String after, Consumer<Loss> onLost) {
        return Follow.commits(this, townId, after, onLost);
    }

    /** Follows the changes of towns without a run, such as by town.put, from the next one on or after a cursor. */
    public Following<Commit> changes(@Nullable String townId, @Nullable String after, Consumer<Loss> onLost) {
        return Follow.changes(this, townId, after, onLost);
    }

    // People.

    /** Iterates over the alerts, the newest first. Operators and observers may call it. */
    public Stream<JsonObject> alerts(boolean unacknowledged) {
        return rows(Verb.ALERT_LIST, "alerts", Json.of("unacknowledged", unacknowledged), alert -> alert);
    }

    /** Acknowledges an alert, and returns it. Operators may call it. */
    public JsonObject acknowledgeAlert(long seq, @Nullable String actorId, @Nullable String reason) {
        return request(Verb.ALERT_ACK, Json.of("seq", seq, "actorId", actorId, "reason", reason));
    }

    /** Iterates over the proposals that wait for a person in a town, or in all towns with null; the oldest first. */
    public Stream<JsonObject> approvals(@Nullable String townId) {
        return rows(Verb.APPROVAL_LIST, "approvals", Json.of("townId", townId), approval -> approval);
    }

    /**
     * Approves or rejects a proposal. The decision is a request of approval.decide: {@code handoffId},
     * {@code townId}, {@code decision} ({@code approve} or {@code reject}), {@code reason}, and perhaps
     * {@code handoffHash}, {@code actorId}, {@code submit}.
     */
    public JsonObject decide(JsonObject decision) {
        var decided = request(Verb.APPROVAL_DECIDE, decision);
        var result = Json.child(decided, "result");
        if (result != null) verified(result, null);
        return decided;
    }

    // Any verb.

    /** Sends a request to a verb, and returns the reply. */
    public JsonObject request(Verb verb, JsonObject body) { return request(verb, body, Call.DEFAULT); }

    /** Sends a request with other options than the defaults. */
    public JsonObject request(Verb verb, JsonObject body, Call call) { return request(verb, body, call, new Ending()); }

    /** Sends a request on a thread of the client. To cancel the future is to give up the call. */
    public CompletableFuture<JsonObject> requestAsync(Verb verb, JsonObject body, Call call) {
        return async(() -> request(verb, body, call));
    }

    JsonObject request(Verb verb, JsonObject body, Call call, Ending ending) {
        return object(ask(verb, body, call, ending).message());
    }

    Exchange.Answer ask(Verb verb, JsonObject body, Call call, Ending ending) {
        return ask(verb, body, call, ending, () -> null, refused -> {});
    }

    Exchange.Answer ask(Verb verb, JsonObject body, Call call, Ending ending,
            Supplier<@Nullable UnavailableException> waits, Consumer<EngineException> refused) {
        if (closing.ended()) throw ended();
        var headers = new Headers();
        call.headers().forEach(headers::put);
        if (call.revision() != null) headers.put("Execution-Result-Revision", call.revision().toString());
        long waitMs = Json.integer(body, "waitMs", 0);
        long timeout = Objects.requireNonNullElse(call.timeout(), CALL).toMillis() + waitMs;
        var request = new Exchange.Request(subject(verb), Json.bytes(body), headers,
            timeout, waitMs, !verb.changes(), served, waits, refused);
        var answer = new Exchange(this, connection, executor, request).answer(ending);
        served = true;
        return answer;
    }

    /** Returns the subject of a verb. Verbs about worlds are asked of no world. */
    private String subject(Verb verb) {
        return "worldengine.v1." + (verb.wire().startsWith("worlds.") ? "=" : world + ".") + verb.wire();
    }

    private <T> Stream<T> rows(Verb verb, String member, JsonObject filters, Function<JsonObject, T> read) {
        var pages = new Iterator<Stream<T>>() {
            private @Nullable JsonElement after = filters.get("after");
            private boolean last;

            @Override
            public boolean hasNext() { return !last; }

            @Override
            public Stream<T> next() {
                var query = filters.deepCopy();
                if (after != null) query.add("after", after);
                var page = request(verb, query);
                after = page.get("next");
                last = after == null;
                return Json.list(page, member, read).stream();
            }
        };
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(pages, Spliterator.ORDERED), false)
            .flatMap(page -> page);
    }

    private <T> CompletableFuture<T> async(Supplier<T> call) {
        var future = new CompletableFuture<T>();
        var task = executor.submit(() -> {
            try {
                future.complete(call.get());
            } catch (Throwable e) { // NOPMD: the future carries it
                future.completeExceptionally(e);
            }
        });
        future.whenComplete((value, error) -> {
            if (future.isCancelled()) task.cancel(true);
        });
        return future;
    }

    /** Returns the connection, for subscriptions of the caller's own. */
    public Connection connection() { return connection; }

    /** Calls a listener with NATS's text when the user lacks a permission. The returned handle removes it. */
    public Listening onPermissionDenied(Consumer<String> listener) { return onDenied(listener)::run; }

    /** The handle of a listener. */
    public interface Listening extends AutoCloseable {
        /** Removes the listener. */
        @Override
        void close();
    }

    // For the other classes of the package.

    Runnable onReconnect(Runnable listener) {
        reconnects.add(listener);
        return () -> reconnects.remove(listener);
    }

    Runnable onDenied(Consumer<String> listener) {
        denials.add(listener);
        return () -> denials.remove(listener);
    }

    Ending closing() { return closing; }

    boolean closedByCaller() { return closedByCaller; }

    UnavailableException ended() {
        return closing.ended()
            ? new UnavailableException(UnavailableException.CONNECTION, "the connection is closed")
            : new UnavailableException(UnavailableException.ABORTED, "given up by its caller");
    }

    static JsonObject object(Message message) {
        try {
            return Json.object(message.getData());
        } catch (JsonParseException e) {
            throw new UnavailableException(UnavailableException.INVALID_ANSWER, "the answer is no JSON object", e);
        }
    }

    static Result verified(JsonObject json, @Nullable Integer revision) {
        try {
            var result = Result.parse(json);
            if (revision == null || result.revision() == revision) return result;
        } catch (IllegalArgumentException e) {
            throw new UnavailableException(UnavailableException.INVALID_ANSWER, "the answer is " + e.getMessage(), e);
        }
        throw new UnavailableException(UnavailableException.INVALID_ANSWER, "the answer is not of revision " + revision);
    }
}
