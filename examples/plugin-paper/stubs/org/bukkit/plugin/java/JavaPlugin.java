// A stub of the few members that the example uses: see README.md.
package org.bukkit.plugin.java;

public abstract class JavaPlugin implements org.bukkit.plugin.Plugin {
    public void onEnable() {}

    public void onDisable() {}

    public boolean onCommand(org.bukkit.command.CommandSender sender, org.bukkit.command.Command command, String label,
            String[] args) {
        return false;
    }

    public void saveDefaultConfig() {}

    public org.bukkit.configuration.file.FileConfiguration getConfig() { throw new UnsupportedOperationException(); }

    public final java.io.File getDataFolder() { throw new UnsupportedOperationException(); }

    public java.util.logging.Logger getLogger() { throw new UnsupportedOperationException(); }

    public final org.bukkit.Server getServer() { throw new UnsupportedOperationException(); }
}
