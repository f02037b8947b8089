package worldengine.plugin;

import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;
import worldengine.client.Json;

/**
 * Remembers the outcome of every command, in a file with a line of JSON for each record; the last line of an id
 * counts. The format is that of Go's package plugin. One thread appends: what waits together is written and
 * synced together. When most lines are superseded, the file is replaced by a shorter one. A torn last line is
 * dropped, since a crash tore it before it counted.
 */
final class Memory implements AutoCloseable {
    static final int MOST_RECORDS = 20_000;
    static final Duration RETENTION = Duration.ofDays(30); // longer than an engine may be away before it asks again
    private static final String HEADER = "{\"memory\":\"worldengine-plugin.v1\"}\n";
    private static final int FEWEST_LINES = 1024; // from which the file is made shorter
    private static final int MOST_TOGETHER = 256;

    /**
     * The state of a command.
     *
     * @param attempt the engine's attempt in which it was last begun or answered
     * @param answer its outcome; null while it is begun or in doubt; busy if it turned out not to be begun
     */
    record Record(String applyId, String townId, long attempt, Instant at, @Nullable Answer answer) {
        boolean begun() { return answer == null; }

        /** Returns the remembered answer to a request of an attempt; a refusal for now counts in its own alone. */
        @Nullable Answer answerTo(long attempt) {
            if (answer == null || !answer.definite()) return null;
            return answer.retryable() && attempt != this.attempt ? null : answer;
        }

        private byte[] line() {
            var json = new JsonObject();
            json.addProperty("applyId", applyId);
            json.addProperty("townId", townId);
            json.addProperty("attempt", attempt);
            json.addProperty("at", at.toString());
            if (answer != null) json.add("answer", Json.object(answer.wire()));
            return (json + "\n").getBytes(StandardCharsets.UTF_8);
        }

        private static Record read(String line) {
            var json = Json.object(line);
            String id = Json.text(json, "applyId"), town = Json.text(json, "townId"), at = Json.text(json, "at");
            if (id == null || id.isEmpty() || at == null) throw new JsonParseException("a record without applyId or at");
            var answer = Json.child(json, "answer");
            return new Record(id, town == null ? "" : town, Json.integer(json, "attempt", 0), Instant.parse(at),
                answer == null ? null : Answer.read(answer));
        }
    }

    private record Write(@Nullable Record record, CompletableFuture<Void> written) {}

    private static final Write END = new Write(null, new CompletableFuture<>());

    private final Path path;
    private final Logger logger;
    private final int most;
    private final Lock lock;
    private final Map<String, Record> records = new LinkedHashMap<>(); // in the order of the first record of an id
    private final LinkedBlockingQueue<Write> writes = new LinkedBlockingQueue<>();
    private final Thread thread;
    private FileChannel file; // of the thread
    private int lines, compactAt;
    private @Nullable Throwable broken;
    private boolean closing; // guarded by writes

    /** Opens or creates the memory, and locks it against other processes by {@code <path>.lock}. */
    Memory(Path path, int most, Logger logger) {
        this.path = path;
        this.most = most;
        this.logger = logger;
        lock = Lock.acquire(path.resolveSibling(path.getFileName() + ".lock"));
        try {
            load();
            file = FileChannel.open(path, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        } catch (IOException | RuntimeException e) {
            lock.close();
            if (e instanceof MemoryException why) throw why;
            throw new MemoryException("the plugin's memory cannot be read or written: " + path + ": " + e, e);
        }
        thread = new Thread(this::write, "worldengine-memory");
        thread.setDaemon(true);
        thread.start();
    }

    /**
     * A lock against other processes, and against other plugins of this one. POSIX drops a process's lock when the
     * process closes any channel of the file, so a locked file is never opened again. The system property, which all
     * class loaders share, says which files are locked.
     */
    private record Lock(@Nullable FileChannel channel, @Nullable String property) {
        static Lock acquire(Path name) {
            @Nullable FileChannel channel = null;
            @Nullable String property = null;
            try {
                var folder = name.toAbsolutePath().getParent();
                Files.createDirectories(folder);
                property = "worldengine-plugin-lock:" + folder.toRealPath().resolve(name.getFileName());
                if (System.getProperties().putIfAbsent(property, "locked") != null) {
                    throw new MemoryException("the plugin's memory is in use by a plugin of this process: close it "
                        + "first, as in onDisable (" + name + ")", null);
                }
                channel = FileChannel.open(name, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
                if (channel.tryLock() != null) return new Lock(channel, property);
            } catch (OverlappingFileLockException e) { // a kit that knows no such property
            } catch (IOException e) {
                new Lock(channel, property).close();
                throw new MemoryException("the lock of the plugin's memory cannot be opened: " + name, e);
            }
            new Lock(channel, property).close();
            throw new MemoryException("the plugin's memory is in use by another process: end it first (" + name + ")", null);
        }

        void close() {
            closeQuietly(channel);
            if (property != null) System.getProperties().remove(property);
        }
    }

    private void load() throws IOException {
        byte[] data = Files.exists(path) ? Files.readAllBytes(path) : new byte[0];
        int whole = data.length == 0 ? 0 : replay(data);
        if (whole < data.length) {
            logger.warning("the last record of the plugin's memory was torn by a crash and is dropped: " + path);
        }
        if (whole == 0 || whole < data.length) rewrite();
    }

    /** Reads the lines of a file, and returns their size without a torn last line. */
    private int replay(byte[] data) throws IOException {
        byte[] header = HEADER.getBytes(StandardCharsets.UTF_8);
        if (!Arrays.equals(data, 0, Math.min(header.length, data.length), header, 0, header.length)) {
            throw new MemoryException("the file is not a plugin's memory, and was not changed: " + path
                + "; give another path", null);
        }
        int begin = header.length;
        for (int end; begin < data.length; begin = end, lines++) {
            end = begin;
            while (end < data.length && data[end] != '\n') end++;
            if (end == data.length) return begin; // torn
            try {
                put(Record.read(new String(data, begin, end - begin, StandardCharsets.UTF_8)), Instant.now());
            } catch (JsonParseException | DateTimeException e) {
                if (end + 1 == data.length) return begin;
                throw new MemoryException("the plugin's memory is damaged before its last line: " + path + " at byte "
                    + begin + "; restore it, or move it away and compare the game with the engine's towns", e);
            }
            end++;
        }
        compactAt = Math.max(4 * records.size(), FEWEST_LINES);
        return begin;
    }

    /** Returns the last record of an id; null for none. It does not wait for the disk. */
    @Nullable Record get(String applyId) {
        synchronized (records) {
            return records.get(applyId);
        }
    }

    /** Returns how many commands are in doubt. */
    long begun() {
        synchronized (records) {
            return records.values().stream().filter(Record::begun).count();
        }
    }

    /** Returns how many commands are remembered. */
    int size() {
        synchronized (records) {
            return records.size();
        }
    }

    /** Replaces the record of an id. The future completes when the record is on the disk, or fails. */
    CompletableFuture<Void> put(Record record) {
        var write = new Write(record, new CompletableFuture<>());
        synchronized (writes) {
            if (closing) return CompletableFuture.failedFuture(new IOException("the plugin's memory is closed"));
            writes.add(write);
        }
        return write.written;
    }

    private void write() {
        for (boolean last = false; !last;) {
            var some = new ArrayList<Write>();
            try {
                some.add(writes.take());
            } catch (InterruptedException e) { // nobody else has this thread
                continue;
            }
            writes.drainTo(some, MOST_TOGETHER - 1);
            last = some.removeIf(write -> write == END);
            if (!some.isEmpty()) append(some);
        }
        closeQuietly(file);
        lock.close();
    }

    private void append(List<Write> some) {
        try {
            if (broken != null) throw new IOException("the plugin's memory failed before", broken);
            appendLines(some);
            var now = Instant.now();
            some.forEach(write -> put(Objects.requireNonNull(write.record), now));
            lines += some.size();
            if (lines >= compactAt) compact();
        } catch (Throwable e) { // whatever it is, nobody may wait for the disk for ever
            some.forEach(write -> write.written.completeExceptionally(e));
            return;
        }
        some.forEach(write -> write.written.complete(null));
    }

    private void appendLines(List<Write> some) throws IOException {
        long size = file.size();
        try {
            for (var write : some) {
                var record = Objects.requireNonNull(write.record);
                byte[] line = record.line();
                var point = record.begun() ? KillPoint.BEGINNING : KillPoint.ENDING;
                point.reached(() -> half(line));
                all(file, line);
            }
        } catch (Throwable e) {
            // A part of a line may be on the disk, and the next line must not follow it.
            try {
                file.truncate(size);
            } catch (Throwable undone) {
                fail(undone);
            }
            if (!(e instanceof IOException)) fail(e); // a full disk may have room again
            throw e;
        }
        try {
            file.force(false);
        } catch (Throwable e) {
            fail(e); // a second sync may succeed without having written
            throw e;
        }
    }

    private void fail(Throwable why) {
        broken = why;
        logger.log(Level.SEVERE, "the plugin's memory can no longer be written, and no command is begun: make room on "
            + "the disk and restart: " + path, why);
    }

    private void half(byte[] line) {
        try {
            all(file, Arrays.copyOf(line, line.length / 2));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void all(FileChannel channel, byte[] bytes) throws IOException {
        for (var buffer = ByteBuffer.wrap(bytes); buffer.hasRemaining();) channel.write(buffer);
    }

    /** Adds a record, and forgets those that are too old or too many; one in doubt only if it is too old. */
    private void put(Record record, Instant now) {
        synchronized (records) {
            records.put(record.applyId, record);
            var back = new ArrayList<Record>();
            for (var oldest = records.values().iterator(); oldest.hasNext();) {
                var first = oldest.next();
                boolean expired = Duration.between(first.at, now).compareTo(RETENTION) > 0;
                if (!expired && records.size() + back.size() <= most) break;
                oldest.remove();
                if (first.begun() && !expired) back.add(first);
            }
            back.forEach(begun -> records.put(begun.applyId, begun));
        }
    }

    private void compact() {
        try {
            file.close(); // first, since Windows does not rename over an open file
            try {
                rewrite();
            } catch (Throwable e) {
                compactAt = 2 * lines; // or every later line would try again
                logger.log(Level.SEVERE, "the plugin's memory could not be written anew: " + path, e);
            }
            file = FileChannel.open(path, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        } catch (Throwable e) {
            fail(e);
        }
    }

    /** Atomically replaces the file by one without superseded records. */
    private void rewrite() throws IOException {
        List<Record> kept;
        synchronized (records) {
            kept = List.copyOf(records.values());
        }
        var fresh = path.resolveSibling(path.getFileName() + ".new");
        try (var channel = FileChannel.open(fresh, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                StandardOpenOption.TRUNCATE_EXISTING)) {
            all(channel, HEADER.getBytes(StandardCharsets.UTF_8));
            for (var record : kept) all(channel, record.line());
            channel.force(true);
        }
        Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        syncFolder(path.toAbsolutePath().getParent());
        lines = kept.size();
        compactAt = Math.max(4 * lines, FEWEST_LINES);
    }

    /** Makes a rename survive a loss of power; Windows has no such call. */
    private static void syncFolder(@Nullable Path folder) {
        if (folder == null) return;
        try (var channel = FileChannel.open(folder, StandardOpenOption.READ)) {
            channel.force(true);
        } catch (IOException e) { // as on Windows
        }
    }

    @Override
    public void close() { close(Duration.ofSeconds(10)); }

    /**
     * Writes what waits, and closes the file. Later writes fail. If the disk takes longer, the file stays locked until
     * all is written or the process ends.
     */
    void close(Duration wait) {
        synchronized (writes) {
            if (!closing) writes.add(END); // not an interrupt, which would close the file amid a write
            closing = true;
        }
        try {
            thread.join(Math.max(1, wait.toMillis()));
            if (thread.isAlive()) logger.severe("the disk of the plugin's memory does not answer: " + path);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void closeQuietly(@Nullable FileChannel channel) {
        try {
            if (channel != null) channel.close();
        } catch (IOException e) { // it is read or written no more
        }
    }
}
