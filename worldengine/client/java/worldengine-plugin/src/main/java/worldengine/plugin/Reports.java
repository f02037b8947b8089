package worldengine.plugin;

import com.google.gson.JsonObject;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Function;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;
import worldengine.client.Emitter;
import worldengine.client.EngineException;
import worldengine.client.Json;
import worldengine.client.ReplyException;
import worldengine.client.RunEvent;
import worldengine.client.Town;
import worldengine.client.UnavailableException;
import worldengine.client.WorldEngine;
import worldengine.client.contract.ErrorCode;
import worldengine.client.contract.Verb;

/** Reports the changes of players, in their order, on a thread of its own. */
final class Reports implements AutoCloseable {
    private static final long PAUSE_MS = 250;
    private static final Set<String> FOR_GOOD =
        Set.of(UnavailableException.PERMISSION_DENIED, UnavailableException.INVALID_ANSWER);

    private final Link link;
    private final Logger logger;
    private final Set<CompletableFuture<Town>> pending = ConcurrentHashMap.newKeySet();
    private final ExecutorService thread =
        Executors.newSingleThreadExecutor(task -> TownPlugin.daemon(task, "worldengine-reports"));

    Reports(Link link, Logger logger) {
        this.link = link;
        this.logger = logger;
    }

    CompletableFuture<Town> report(String townId, Function<Town, @Nullable JsonObject> patch) {
        var done = new CompletableFuture<Town>();
        done.whenComplete((town, error) -> {
            pending.remove(done);
            if (error != null) logger.warning("a report about the town " + SafeText.line(townId, 64) + " failed: " + error);
        });
        pending.add(done);
        try {
            thread.execute(() -> {
                try {
                    done.complete(patched(townId, patch));
                } catch (Throwable e) { // the author's function may throw anything
                    done.completeExceptionally(e);
                }
            });
        } catch (RejectedExecutionException e) {
            done.completeExceptionally(closed(e));
        }
        return done;
    }

    /** Patches the state of the town that the function has seen, again until no other change comes between. */
    private Town patched(String townId, Function<Town, @Nullable JsonObject> patch) {
        for (;; pause()) {
            var town = ask(engine -> engine.town(townId));
            if (town == null) continue;
            var change = patch.apply(town);
            if (change == null) return town;
            var patched = ask(engine -> engine.patchTown(townId, change, town.snapshotHash()));
            if (patched != null) return patched;
        }
    }

    /** Calls the engine; null if it is worth another try. A patch that was carried out all the same is seen then. */
    private @Nullable Town ask(Function<WorldEngine, Town> call) {
        var engine = link.engine();
        if (engine == null) return null;
        try {
            return call.apply(engine);
        } catch (ReplyException e) {
            boolean again = e.code().equals(ErrorCode.SNAPSHOT_CONFLICT) || e.status() == 429 || e.status() == 503;
            if (!again) throw e;
        } catch (EngineException e) {
            if (FOR_GOOD.contains(e.code())) throw e;
        } catch (IllegalStateException e) { // the connection is closed
        }
        return null;
    }

    private static IllegalStateException closed(@Nullable Throwable cause) {
        return new IllegalStateException("the plugin was closed before the report was made", cause);
    }

    private static void pause() {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw closed(e);
        }
    }

    private WorldEngine engine() {
        var engine = link.engine();
        if (engine == null) throw new IllegalStateException("there is no connection: " + link.state());
        return engine;
    }

    /** Returns an emitter that knows the events of the command's run. */
    Emitter emitter(Command command) {
        var engine = engine();
        var body = new JsonObject();
        body.addProperty("runId", command.runId());
        var events = engine.request(Verb.RUN_EVENTS, body).getAsJsonArray("events");
        var first = events.get(0).getAsJsonObject();
        var emitter = new Emitter(engine, command.townId(), new Emitter.RunIdentity(command.runId(), text(first, "tenantId"),
            text(first, "projectId"), text(first, "environmentId"), text(first, "planId"), text(first, "planVersion")), 1);
        events.forEach(event -> emitter.observe(RunEvent.read(event.getAsJsonObject())));
        return emitter;
    }

    private static String text(JsonObject event, String name) {
        String text = Json.text(event, name);
        return text == null ? "" : text;
    }

    @Override
    public void close() {
        thread.shutdownNow();
        pending.forEach(report -> report.completeExceptionally(closed(null)));
    }
}
