package example.minestom;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import net.kyori.adventure.text.Component;
import net.minestom.server.MinecraftServer;
import net.minestom.server.adventure.audience.Audiences;
import net.minestom.server.command.ConsoleSender;
import net.minestom.server.command.builder.Command;
import net.minestom.server.coordinate.Pos;
import net.minestom.server.entity.GameMode;
import net.minestom.server.entity.Player;
import net.minestom.server.event.player.AsyncPlayerConfigurationEvent;
import net.minestom.server.event.player.PlayerSpawnEvent;
import net.minestom.server.instance.InstanceContainer;
import net.minestom.server.instance.block.Block;
import worldengine.plugin.TownPlugin;

/** A Minecraft server with the plugin: {@code GameServer [config.json]}. Names of players are not checked. */
public final class GameServer {
    private static final int GROUND = 5, OPERATOR = 4;

    private GameServer() {}

    /** Starts the server, and prints a line "listening PORT" when players can join. */
    public static void main(String[] args) throws IOException {
        var settings = Settings.read(Path.of(args.length > 0 ? args[0] : "config.json"));
        var server = MinecraftServer.init();
        var world = MinecraftServer.getInstanceManager().createInstanceContainer();
        world.setGenerator(unit -> unit.modifier().fillHeight(0, GROUND, Block.GRASS_BLOCK));
        world.setTimeRate(0);
        welcome(world);

        var plugin = plugin(world, settings);
        MinecraftServer.getSchedulerManager().buildShutdownTask(plugin::close);
        MinecraftServer.getCommandManager().register(status(plugin));
        server.start(settings.host(), settings.port());
        System.out.println("listening " + MinecraftServer.getServer().getPort());
        console();
    }

    private static TownPlugin plugin(InstanceContainer world, Settings settings) {
        var builder = new Builder(world, settings);
        return TownPlugin.builder().name("plugin-minestom")
            .connection(settings.connection()).world(settings.world())
            .towns(settings.towns().keySet().toArray(String[]::new))
            .memory(settings.memory()).queue(settings.queue()).allow(settings.allow())
            .mainThread(task -> MinecraftServer.getSchedulerManager().scheduleNextTick(task))
            .applyAsync(builder::apply)
            .recoverAsync(builder::apply)
            .start();
    }

    private static void welcome(InstanceContainer world) {
        var events = MinecraftServer.getGlobalEventHandler();
        events.addListener(AsyncPlayerConfigurationEvent.class, event -> {
            event.setSpawningInstance(world);
            event.getPlayer().setRespawnPoint(new Pos(8, GROUND, 8, 0, 0)); // looks to the south
            event.getPlayer().setGameMode(GameMode.CREATIVE);
        });
        events.addListener(PlayerSpawnEvent.class, event -> {
            if (event.isFirstSpawn()) {
                Audiences.players().sendMessage(Component.text(event.getPlayer().getUsername() + " joined the game"));
            }
        });
    }

    private static Command status(TownPlugin plugin) {
        var command = new Command("worldengine");
        command.setCondition((sender, text) -> sender instanceof ConsoleSender
            || sender instanceof Player player && player.getPermissionLevel() >= OPERATOR);
        command.setDefaultExecutor((sender, context) -> {
            if (sender instanceof ConsoleSender) System.err.println("NATS " + plugin.status()); // Minestom's logs need a backend
            else sender.sendMessage("NATS " + plugin.status());
        });
        return command;
    }

    /** Gives lines of the standard input to the server as commands. */
    private static void console() throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null;) {
            var commands = MinecraftServer.getCommandManager();
            commands.execute(commands.getConsoleSender(), line);
        }
    }
}
