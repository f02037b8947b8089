// A stub of the few members that the example uses: see README.md.
package org.bukkit.entity;

public interface Player {
    org.bukkit.World getWorld();
}
