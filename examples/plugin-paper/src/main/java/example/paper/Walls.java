package example.paper;

import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import net.kyori.adventure.text.Component;
import org.bukkit.Bukkit;
import org.bukkit.Material;
import org.bukkit.World;
import org.bukkit.configuration.file.FileConfiguration;
import org.bukkit.plugin.java.JavaPlugin;
import worldengine.plugin.Command;
import worldengine.plugin.Outcome;
import worldengine.plugin.SafeText;

/** Builds the walls of a town's projects, and says what its townsfolk say. All of it runs on the main thread. */
final class Walls {
    private static final int LENGTH = 20, HEIGHT = 5, LANES = 16;

    private final JavaPlugin plugin;
    private final World world;
    private final int x, y, z;

    Walls(JavaPlugin plugin, FileConfiguration config) {
        this.plugin = plugin;
        world = Bukkit.getWorld(config.getString("minecraft-world"));
        if (world == null) throw new IllegalArgumentException("config.yml: minecraft-world: this server has no such world");
        x = config.getInt("x");
        y = config.getInt("y");
        z = config.getInt("z");
    }

    CompletionStage<Outcome> apply(Command command) {
        return change(command, Outcome.refusedForNow("CHUNK_NOT_LOADED", "A chunk of the wall cannot be loaded."));
    }

    /** Completes a command that was cut off. It sets blocks, so it may find some of them or all. */
    CompletionStage<Outcome> recover(Command command) { return change(command, Outcome.unknown()); }

    /** Changes the world; {@code unloaded} is the outcome if that cannot be begun. */
    private CompletionStage<Outcome> change(Command command, Outcome unloaded) {
        plugin.getLogger().info("applies " + command.type() + " " + SafeText.line(command.argument(), 40) + " in "
            + SafeText.line(command.townId(), 40) + ", " + command.applyId());
        return switch (command.type()) {
            case PROJECT_ADVANCE -> command.expectedProject() == null
                ? CompletableFuture.completedFuture(Outcome.refused("UNKNOWN_PROJECT", "The town has no such project."))
                : grow(command.argument(), command.expectedProgress(), unloaded);
            case TOWNSFOLK_TALK -> {
                // As data, not through MiniMessage or a console: agents wrote it.
                Bukkit.getServer().broadcast(Component.text(SafeText.line(command.actorId(), 40) + " talks to the townsfolk."));
                yield CompletableFuture.completedFuture(Outcome.applied());
            }
            default -> CompletableFuture.completedFuture(
                Outcome.refused("NOT_ALLOWED", "This server does not do that."));
        };
    }

    /** Sets the first blocks of a project's wall, one for each percent, when their chunks are loaded. */
    private CompletionStage<Outcome> grow(String projectId, double progress, Outcome unloaded) {
        int lane = z + 2 * Math.floorMod(projectId.hashCode(), LANES);
        int count = (int) Math.floor(Math.min(Math.max(progress, 0), 1) * LENGTH * HEIGHT + 1e-6);
        var chunks = new ArrayList<CompletableFuture<?>>();
        for (int chunk = x >> 4; chunk <= x + LENGTH - 1 >> 4; chunk++) chunks.add(world.getChunkAtAsync(chunk, lane >> 4));
        var done = new CompletableFuture<Outcome>();
        CompletableFuture.allOf(chunks.toArray(CompletableFuture[]::new)).whenComplete((loaded, error) ->
            Bukkit.getScheduler().runTask(plugin, () -> {
                if (error != null) {
                    done.complete(unloaded);
                    return;
                }
                try {
                    for (int i = 0; i < count; i++) {
                        world.getBlockAt(x + i % LENGTH, y + i / LENGTH, lane).setType(Material.STONE_BRICKS);
                    }
                    done.complete(Outcome.applied());
                } catch (RuntimeException e) {
                    done.completeExceptionally(e); // the command stays in doubt, and recover completes it
                }
            }));
        return done;
    }
}
