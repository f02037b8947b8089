// A stub of the few members that the example uses: see README.md.
package org.bukkit;

public final class Bukkit {
    private Bukkit() {}

    public static org.bukkit.scheduler.BukkitScheduler getScheduler() { throw new UnsupportedOperationException(); }

    public static Server getServer() { throw new UnsupportedOperationException(); }

    public static World getWorld(String name) { throw new UnsupportedOperationException(); }
}
