package worldengine.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SafeTextTest {
    @Test
    void line_isPlainAndBounded() {
        assertEquals("mayor 4Ada", SafeText.line(" mayor \u00A74Ada\n", 40));
        assertEquals("a b c", SafeText.line("a\r\n\tb\u2028\u00A0c\u0000\u202E\u200B\uE000", 40));
        assertEquals("@a \"<red>\" /op me", SafeText.line("@a \"<red>\" /op me", 40));
        assertEquals("\uD83D\uDE00\uD83D\uDE00…", SafeText.line("\uD83D\uDE00".repeat(5), 3));
        assertEquals("x", SafeText.line("x\uD800", 3), "a lone surrogate");
        assertEquals(100, SafeText.line("y".repeat(10_000), 100).length());
    }
}
