package worldengine.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

class MemoryTest {
    private static final Duration RETRY = Duration.ofMillis(250);
    @TempDir
    private Path dir;

    private Memory open() { return open(Memory.MOST_RECORDS); }

    private Memory open(int most) { return new Memory(dir.resolve("state/memory"), most, Logger.getAnonymousLogger()); }

    private static Memory.Record record(String id, Outcome outcome) {
        return new Memory.Record(id, "t", 1, Instant.now(), outcome == null ? null : Answer.of(id, outcome, RETRY, Logger.getAnonymousLogger()));
    }

    @Test
    void records_surviveTheProcess() throws Exception {
        try (var memory = open()) {
            memory.put(record("a", null)).get();
            memory.put(record("a", Outcome.applied())).get();
            memory.put(record("b", null)).get();
            memory.put(record("c", Outcome.refusedForNow("LATER", "Later."))).get();
            memory.put(record("d", Outcome.notBegun())).get();
        }
        try (var memory = open()) {
            assertEquals("applied", memory.get("a").answerTo(7).status());
            assertTrue(memory.get("b").begun());
            assertEquals("refused", memory.get("c").answerTo(1).status());
            assertNull(memory.get("c").answerTo(2), "a refusal for now is of its attempt");
            assertNull(memory.get("d").answerTo(1));
            assertFalse(memory.get("d").begun());
            assertEquals(1, memory.begun());
        }
    }

    @Test
    void aTornLastLine_isDropped_andDamageBeforeItIsRefused() throws Exception {
        var file = dir.resolve("state/memory");
        try (var memory = open()) {
            memory.put(record("a", Outcome.applied())).get();
        }
        Files.writeString(file, "{\"applyId\":\"b\",\"to", StandardOpenOption.APPEND);
        try (var memory = open()) {
            assertNotNull(memory.get("a"));
            assertNull(memory.get("b"));
            memory.put(record("c", null)).get();
        }
        try (var memory = open()) {
            assertTrue(memory.get("c").begun());
        }
        Files.writeString(file, Files.readString(file).replace("{\"applyId\":\"a\"", "{\"applyId\""));
        assertTrue(assertThrows(MemoryException.class, this::open).getMessage().contains("damaged"));
        Files.writeString(file, "My diary.\n");
        assertTrue(assertThrows(MemoryException.class, this::open).getMessage().contains("not a plugin's memory"));
        assertEquals("My diary.\n", Files.readString(file));
    }

    @Test
    void aMemory_hasOneOwner() {
        try (var memory = open()) {
            assertTrue(assertThrows(MemoryException.class, this::open).getMessage().contains("in use"));
            assertEquals(0, memory.size());
        }
        open().close();
    }

    @Test
    void aSecondStart_leavesTheLockAgainstOtherProcesses() throws Exception {
        try (var memory = open()) {
            assertThrows(MemoryException.class, this::open);
            var other = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-cp",
                System.getProperty("java.class.path"), MemoryTest.class.getName(), dir.resolve("state/memory").toString());
            other.redirectErrorStream(true);
            var process = other.start();
            String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertTrue(printed.contains("in use by another process"), printed);
            assertEquals(0, memory.size());
        }
    }

    /** Opens a memory in another process. */
    public static void main(String[] args) {
        try (var memory = new Memory(Path.of(args[0]), Memory.MOST_RECORDS, Logger.getAnonymousLogger())) {
            System.out.println("opened with " + memory.size());
        } catch (MemoryException e) {
            System.out.println(e.getMessage());
        }
    }

    @Test
    @Timeout(60)
    void aRecordThatCannotBeWritten_failsItAndLaterOnes() throws Exception {
        try (var memory = open()) {
            memory.put(record("a", null)).get();
            var noJson = new Answer(Answer.APPLIED, false, "{\"a\":NaN}".getBytes(StandardCharsets.UTF_8));
            var bad = memory.put(new Memory.Record("b", "t", 1, Instant.now(), noJson));
            assertThrows(ExecutionException.class, bad::get);
            assertThrows(ExecutionException.class, memory.put(record("c", null))::get);
        }
        try (var memory = open()) {
            assertEquals(1, memory.size());
            memory.put(record("c", null)).get();
        }
    }

    @Test
    void aClosedMemory_refusesRecords() {
        var memory = open();
        memory.close();
        memory.close();
        assertTrue(memory.put(record("a", null)).isCompletedExceptionally());
    }

    @Test
    void theOldest_areForgotten_butNoneInDoubt_andTheFileIsMadeShorter() throws Exception {
        try (var memory = open(10)) {
            memory.put(record("doubt", null)).get();
            var written = new ArrayList<CompletableFuture<Void>>();
            for (int i = 0; i < 3000; i++) written.add(memory.put(record("id" + i, Outcome.applied())));
            for (var write : written) write.get();
            assertEquals(10, memory.size());
            assertTrue(memory.get("doubt").begun());
            assertNull(memory.get("id0"));
            assertNotNull(memory.get("id2999"));
        }
        try (var lines = Files.lines(dir.resolve("state/memory"))) {
            assertTrue(lines.count() < 2000);
        }
        try (var memory = open(10)) {
            assertTrue(memory.get("doubt").begun());
            assertNotNull(memory.get("id2999"));
        }
    }
}
