// A stub of the few members that the example uses: see README.md.
package net.kyori.adventure.text;

public interface Component {
    static Component text(String content) { throw new UnsupportedOperationException(); }
}
