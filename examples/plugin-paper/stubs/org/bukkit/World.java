// A stub of the few members that the example uses: see README.md.
package org.bukkit;

public interface World {
    enum Environment { NORMAL, NETHER, THE_END, CUSTOM }

    Environment getEnvironment();

    org.bukkit.block.Block getBlockAt(int x, int y, int z);

    java.util.concurrent.CompletableFuture<Chunk> getChunkAtAsync(int x, int z);
}
