package worldengine.plugin;

import com.google.gson.JsonObject;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;
import worldengine.client.Emitter;
import worldengine.client.EngineException;
import worldengine.client.Json;
import worldengine.client.ReplyException;
import worldengine.client.RunEvent;
import worldengine.client.Town;
import worldengine.client.WorldEngine;
import worldengine.client.contract.ErrorCode;
import worldengine.client.contract.Verb;

/** Reports the changes of players, in their order, on a thread of its own. */
final class Reports implements AutoCloseable {
    private static final long PAUSE_MS = 250;

    private final Link link;
    private final Logger logger;
    private final ExecutorService thread =
        Executors.newSingleThreadExecutor(task -> TownPlugin.daemon(task, "worldengine-reports"));

    Reports(Link link, Logger logger) {
        this.link = link;
        this.logger = logger;
    }

    CompletableFuture<Town> report(String townId, Function<Town, @Nullable JsonObject> patch) {
        return CompletableFuture.supplyAsync(() -> patched(townId, patch), thread).whenComplete((town, error) -> {
            if (error != null) logger.warning("a report about the town " + SafeText.line(townId, 64) + " failed: " + error);
        });
    }

    /** Patches the state of the town that the function has seen, again until no other change comes between. */
    private Town patched(String townId, Function<Town, @Nullable JsonObject> patch) {
        for (;;) {
            try {
                var engine = engine();
                var town = engine.town(townId);
                var change = patch.apply(town);
                return change == null ? town : engine.patchTown(townId, change, town.snapshotHash());
            } catch (ReplyException e) {
                boolean again = e.code().equals(ErrorCode.SNAPSHOT_CONFLICT) || e.status() == 429 || e.status() == 503;
                if (!again) throw e;
            } catch (EngineException | IllegalStateException e) {
                // away; a patch that was carried out all the same is seen in the next round
            }
            pause();
        }
    }

    private static void pause() {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("the plugin was closed before the report was made", e);
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
    public void close() { thread.shutdownNow(); }
}
