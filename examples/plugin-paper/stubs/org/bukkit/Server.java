// A stub of the few members that the example uses: see README.md.
package org.bukkit;

public interface Server {
    org.bukkit.plugin.PluginManager getPluginManager();

    int broadcast(net.kyori.adventure.text.Component message);
}
