package worldengine.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import worldengine.client.ConnectionSettings;
import worldengine.client.contract.ProposalType;

class BuilderTest {
    @TempDir
    private Path dir;

    private TownPlugin.Builder builder() {
        var logger = Logger.getAnonymousLogger();
        logger.setLevel(Level.OFF);
        return TownPlugin.builder().connection("nats://127.0.0.1:1").towns("t").memory(dir.resolve("m")).logger(logger)
            .apply(command -> Outcome.applied());
    }

    @Test
    void aWrongSetting_isNamed() {
        for (var wrong : new Runnable[] {
            () -> TownPlugin.builder().towns("t").memory(dir).start(), () -> builder().towns("t", "").start(),
            () -> TownPlugin.builder().apply(c -> Outcome.applied()).memory(dir).start(), () -> builder().world("a.b"),
            () -> builder().towns(), () -> builder().towns((String) null), () -> builder().world(null),
            () -> builder().connection(""), () -> builder().connection((String) null), () -> builder().connection(",").start(),
            () -> builder().allow((ProposalType) null),
            () -> builder().connection(ConnectionSettings.of("nats://h:1").withCredentials(dir.resolve("none"))).start(),
            () -> builder().queue(0), () -> builder().tickBudget(Duration.ZERO), () -> Outcome.refused("no", "It is small."),
        }) {
            var error = assertThrows(IllegalArgumentException.class, wrong::run);
            assertTrue(error.getMessage().length() > 20, error.getMessage());
        }
    }

    @Test
    void aUrlThatCannotBeRead_keepsItsPassword() {
        for (var url : new String[] {"nats://ada:se cret@h:4222", "nats://ada:secret%@h:4222", "nats://ada:[secret@h:4222"}) {
            var error = assertThrows(IllegalArgumentException.class, () -> builder().connection(url).start(), url);
            assertTrue(error.getMessage().contains("NATS_PASSWORD"), error.getMessage());
            assertFalse(error.getMessage().contains("cret"), error.getMessage());
            assertNull(error.getCause());
        }
    }

    @Test
    @Timeout(60)
    void start_returnsAtOnce_andCloseEndsAllThreads() throws Exception {
        int before = kitThreads();
        var plugin = builder().start();
        assertTrue(kitThreads() > before);
        assertEquals(0, plugin.status().waiting());
        assertTrue(plugin.status().toString().contains("in hand 0"));
        plugin.close();
        plugin.close();
        while (kitThreads() > before) Thread.sleep(10);
        assertEquals("closed", plugin.status().connection());
        builder().start().close(); // the memory is free again
    }

    private static int kitThreads() {
        return (int) Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().startsWith("worldengine-") || thread.getName().startsWith("nats")).count();
    }
}
