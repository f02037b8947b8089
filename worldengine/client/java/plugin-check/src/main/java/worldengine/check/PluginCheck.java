package worldengine.check;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import worldengine.client.ConnectionSettings;
import worldengine.plugin.Outcome;
import worldengine.plugin.TownPlugin;

/**
 * A plugin whose game is a file: each application appends a line with its applyId. It is for {@code handoffctl plugin
 * check}, and for tests that kill it.
 */
public final class PluginCheck {
    private static final Set<String> REQUIRED = Set.of("server", "world", "town", "memory", "game");
    private static final Set<String> OPTIONAL = Set.of("delay", "ticks");
    private static final String USAGE =
        "usage: java -jar plugin-check.jar --server URL --world W --town T... --memory FILE --game FILE [--delay MS] "
            + "[--ticks yes]";

    private PluginCheck() {}

    /** Serves until the process is ended. */
    public static void main(String[] args) throws IOException {
        var flags = flags(args);
        var game = new FileGame(Path.of(flags.get("game")));
        long delay = Long.parseLong(flags.getOrDefault("delay", "0"));
        var ticks = flags.containsKey("ticks") ? new Ticks() : null;
        var builder = TownPlugin.builder().name("plugin-check")
            .connection(ConnectionSettings.fromEnvironment().withServers(flags.get("server")))
            .world(flags.get("world")).towns(flags.get("town").split("\n")).memory(Path.of(flags.get("memory")))
            // Half of the delay before the change and half after it, so that a kill can fall on either side.
            .applyAsync(command -> after(delay / 2).thenCompose(wait -> {
                game.add(command.applyId());
                return after(delay - delay / 2);
            }).thenApply(wait -> Outcome.applied()))
            .recover(command -> game.has(command.applyId()) ? Outcome.applied() : Outcome.notBegun());
        if (ticks != null) builder.mainThread(ticks);
        var plugin = builder.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            plugin.close();
            if (ticks != null) System.out.println(ticks);
        }));
        System.out.println("ready");
        park();
    }

    private static CompletableFuture<Void> after(long ms) {
        if (ms == 0) return CompletableFuture.completedFuture(null);
        Executor later = CompletableFuture.delayedExecutor(ms, TimeUnit.MILLISECONDS);
        return CompletableFuture.runAsync(() -> { }, later);
    }

    private static void park() {
        for (;;) {
            try {
                Thread.sleep(Duration.ofDays(1).toMillis());
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static Map<String, String> flags(String[] args) {
        var flags = new HashMap<String, String>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            if (args[i].startsWith("--")) flags.merge(args[i].substring(2), args[i + 1], (one, more) -> one + "\n" + more);
        }
        boolean known = flags.keySet().stream().allMatch(name -> REQUIRED.contains(name) || OPTIONAL.contains(name));
        if (args.length % 2 != 0 || !known || !flags.keySet().containsAll(REQUIRED)) {
            System.err.println(USAGE);
            System.exit(2);
        }
        return flags;
    }
}
