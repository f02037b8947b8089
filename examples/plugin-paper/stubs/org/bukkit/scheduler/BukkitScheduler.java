// A stub of the few members that the example uses: see README.md.
package org.bukkit.scheduler;

public interface BukkitScheduler {
    BukkitTask runTask(org.bukkit.plugin.Plugin plugin, Runnable task);
}
