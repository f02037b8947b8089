// A stub of the few members that the example uses: see README.md.
package org.bukkit.configuration.file;

public abstract class FileConfiguration {
    public abstract String getString(String path);

    public abstract int getInt(String path);

    public abstract java.util.List<String> getStringList(String path);
}
