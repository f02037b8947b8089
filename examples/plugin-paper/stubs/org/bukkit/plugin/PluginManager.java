// A stub of the few members that the example uses: see README.md.
package org.bukkit.plugin;

public interface PluginManager {
    void disablePlugin(Plugin plugin);

    void registerEvents(org.bukkit.event.Listener listener, Plugin plugin);
}
