// A stub of the few members that the example uses: see README.md.
package org.bukkit.event.player;

public class PlayerChangedWorldEvent {
    public org.bukkit.entity.Player getPlayer() { throw new UnsupportedOperationException(); }
}
