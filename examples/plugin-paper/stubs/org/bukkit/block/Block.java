// A stub of the few members that the example uses: see README.md.
package org.bukkit.block;

public interface Block {
    void setType(org.bukkit.Material type);
}
