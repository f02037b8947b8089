package worldengine.plugin;

import java.util.regex.Pattern;

/** Makes texts of agents fit for players, logs and signs. */
public final class SafeText {
    private static final Pattern SPACES = Pattern.compile("[\\p{Z}\\t-\\r]+");
    /** Control, format, private and unassigned characters, lone surrogates, and the game's formatting sign. */
    private static final Pattern HIDDEN = Pattern.compile("[\\p{C}\u00A7]");

    private SafeText() {}

    /**
     * Returns a text as one plain line of at most {@code max} characters: without line breaks, invisible
     * characters and {@code §}. Show it as plain text, not through a parser of formats such as MiniMessage, and
     * never give it to a console.
     */
    public static String line(String text, int max) {
        String clean = HIDDEN.matcher(SPACES.matcher(text).replaceAll(" ")).replaceAll("").strip();
        if (clean.codePointCount(0, clean.length()) <= max) return clean;
        return clean.substring(0, clean.offsetByCodePoints(0, Math.max(0, max - 1))) + "…";
    }
}
