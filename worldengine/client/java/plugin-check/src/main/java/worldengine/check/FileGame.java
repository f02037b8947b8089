package worldengine.check;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;

/** A game that is a file: a line for each application. A line is written at once, and outlives the process. */
final class FileGame {
    private final FileChannel file;
    private final Set<String> ids = new HashSet<>();

    FileGame(Path path) throws IOException {
        if (path.getParent() != null) Files.createDirectories(path.getParent());
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        String text = Files.readString(path);
        int whole = text.lastIndexOf('\n') + 1; // a torn line is no application
        text.substring(0, whole).lines().forEach(ids::add);
        file.truncate(whole).position(whole);
    }

    synchronized boolean has(String applyId) { return ids.contains(applyId); }

    /** Applies a command. It is for the kit to call it once for an id. */
    synchronized void add(String applyId) {
        var line = ByteBuffer.wrap((applyId + "\n").getBytes(StandardCharsets.US_ASCII));
        try {
            while (line.hasRemaining()) file.write(line);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        ids.add(applyId);
    }
}
