package example.minestom;

import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import net.kyori.adventure.text.Component;
import net.minestom.server.MinecraftServer;
import net.minestom.server.adventure.audience.Audiences;
import net.minestom.server.instance.Instance;
import net.minestom.server.timer.TaskSchedule;
import worldengine.plugin.Command;
import worldengine.plugin.Outcome;
import worldengine.plugin.SafeText;

/** Carries out plans in the game's world. All of it runs on the game's ticks. */
final class Builder {
    private final Instance world;
    private final Settings settings;

    Builder(Instance world, Settings settings) {
        this.world = world;
        this.settings = settings;
    }

    /**
     * Applies a command, a few blocks a tick. A block that stands already is left alone, so it also completes a
     * command that was cut off: the kit calls it to recover, too.
     */
    CompletionStage<Outcome> apply(Command command) {
        var plan = Plan.of(command, settings.towns().get(command.townId()));
        if (plan.refusal() != null) return CompletableFuture.completedFuture(plan.refusal());
        System.err.println("applies " + command.type() + " " + SafeText.line(command.argument(), 40) + " in "
            + SafeText.line(command.townId(), 40) + ", " + command.applyId()); // Minestom's logs need a backend
        // As data, not as a text in which the game would look for formats, and never as a command.
        if (plan.line() != null) Audiences.players().sendMessage(Component.text(plan.line()));
        var chunks = plan.blocks().stream().map(placed -> world.loadOptionalChunk(placed.at()))
            .toArray(CompletableFuture[]::new);
        return CompletableFuture.allOf(chunks).thenCompose(loaded -> build(plan));
    }

    private CompletableFuture<Outcome> build(Plan plan) {
        var left = new ArrayDeque<>(plan.blocks());
        var built = new CompletableFuture<Outcome>();
        MinecraftServer.getSchedulerManager().submitTask(() -> {
            try {
                for (int placed = 0; placed < settings.blocksPerTick() && !left.isEmpty();) {
                    var next = left.remove();
                    if (world.getBlock(next.at()).equals(next.block())) continue;
                    world.setBlock(next.at(), next.block());
                    placed++;
                }
            } catch (RuntimeException e) {
                built.completeExceptionally(e); // the command stays in doubt, and is completed when it is asked again
                return TaskSchedule.stop();
            }
            if (!left.isEmpty()) return TaskSchedule.nextTick();
            built.complete(Outcome.applied());
            return TaskSchedule.stop();
        });
        return built;
    }
}
