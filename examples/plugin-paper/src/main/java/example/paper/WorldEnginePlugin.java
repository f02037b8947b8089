package example.paper;

import org.bukkit.Bukkit;
import org.bukkit.World;
import org.bukkit.command.Command;
import org.bukkit.command.CommandSender;
import org.bukkit.event.EventHandler;
import org.bukkit.event.Listener;
import org.bukkit.event.player.PlayerChangedWorldEvent;
import org.bukkit.plugin.java.JavaPlugin;
import worldengine.client.contract.ProposalType;
import worldengine.libs.gson.JsonObject;
import worldengine.plugin.MemoryException;
import worldengine.plugin.TownPlugin;

/** The plugin: the kit, told how this server is changed. */
public final class WorldEnginePlugin extends JavaPlugin implements Listener {
    private TownPlugin plugin;
    private String town;

    @Override
    public void onEnable() {
        saveDefaultConfig();
        var config = getConfig();
        town = config.getString("town");
        try {
            var walls = new Walls(this, config);
            plugin = TownPlugin.builder()
                .connection(config.getString("url")).world(config.getString("world")).towns(town)
                .memory(getDataFolder().toPath().resolve("worldengine.memory"))
                .allow(config.getStringList("allow").stream().map(ProposalType::valueOf).toArray(ProposalType[]::new))
                .mainThread(task -> Bukkit.getScheduler().runTask(this, task))
                .applyAsync(walls::apply)
                .recoverAsync(walls::recover)
                .logger(getLogger()).start();
        } catch (IllegalArgumentException | MemoryException e) {
            getLogger().severe("not enabled: " + e.getMessage());
            getServer().getPluginManager().disablePlugin(this);
            return;
        }
        getServer().getPluginManager().registerEvents(this, this);
    }

    @Override
    public void onDisable() {
        if (plugin != null) plugin.close();
    }

    @Override
    public boolean onCommand(CommandSender sender, Command command, String label, String[] args) {
        sender.sendMessage(plugin.status().toString());
        return true;
    }

    /** Reports to the engine that a player went to the Nether. */
    @EventHandler
    public void onChangedWorld(PlayerChangedWorldEvent event) {
        if (event.getPlayer().getWorld().getEnvironment() != World.Environment.NETHER) return;
        var patch = new JsonObject();
        patch.addProperty("latestNetherEvent", "a player went to the Nether");
        plugin.reportTown(town, now -> patch); // goes on by itself: never wait for it on the main thread
    }
}
