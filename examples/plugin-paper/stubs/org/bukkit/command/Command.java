// A stub of the few members that the example uses: see README.md.
package org.bukkit.command;

public abstract class Command {}
