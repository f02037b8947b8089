package example.minestom;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import worldengine.client.ConnectionSettings;
import worldengine.client.Json;
import worldengine.client.contract.ProposalType;

/** The settings: config.example.json has all of them with their defaults, but for the towns, which have none. */
record Settings(ConnectionSettings connection, String world, Map<String, Place> towns, ProposalType[] allow, int queue,
        int blocksPerTick, Path memory, String host, int port) {
    /** The corner at which a town is built; y is the first free layer above the ground. */
    record Place(int x, int y, int z) {}

    static Settings read(Path file) throws IOException {
        var json = Json.object(Files.readAllBytes(file));
        var limits = section(json, "limits");
        var game = section(json, "game");
        var connection = ConnectionSettings.fromEnvironment(); // the user and the secrets are in no file
        if (System.getenv("NATS_URL") == null && section(json, "nats").has("url")) {
            connection = connection.withServers(section(json, "nats").get("url").getAsString());
        }
        var memory = json.has("stateFile") ? json.get("stateFile").getAsString() : "state/worldengine.memory";
        return new Settings(connection, json.has("world") ? json.get("world").getAsString() : "main",
            towns(section(json, "towns")), allowed(json.get("allow")), integer(limits, "queue", 64),
            integer(limits, "blocksPerTick", 32), file.toAbsolutePath().getParent().resolve(memory),
            game.has("host") ? game.get("host").getAsString() : "127.0.0.1", integer(game, "port", 25565));
    }

    private static Map<String, Place> towns(JsonObject json) {
        var towns = new HashMap<String, Place>();
        for (var town : json.entrySet()) {
            var place = town.getValue().getAsJsonObject();
            towns.put(town.getKey(), new Place(place.get("x").getAsInt(), place.get("y").getAsInt(),
                place.get("z").getAsInt()));
        }
        if (towns.isEmpty()) throw new IllegalArgumentException("config: towns must name a town at least");
        return towns;
    }

    private static ProposalType[] allowed(JsonElement types) {
        if (types == null) return ProposalType.values();
        return types.getAsJsonArray().asList().stream().map(type -> ProposalType.named(type.getAsString())
            .orElseThrow(() -> new IllegalArgumentException("config: allow: " + type + " is one of "
                + Arrays.toString(ProposalType.values())))).toArray(ProposalType[]::new);
    }

    private static JsonObject section(JsonObject json, String name) {
        return json.has(name) ? json.getAsJsonObject(name) : new JsonObject();
    }

    private static int integer(JsonObject json, String name, int otherwise) {
        return json.has(name) ? json.get(name).getAsInt() : otherwise;
    }
}
