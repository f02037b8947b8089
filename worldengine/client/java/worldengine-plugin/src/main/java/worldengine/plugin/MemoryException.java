package worldengine.plugin;

import org.jspecify.annotations.Nullable;

/** The memory cannot be used: it is in use by another process, damaged, no memory, or cannot be written. */
public final class MemoryException extends RuntimeException {
    private static final long serialVersionUID = 1;

    MemoryException(String message, @Nullable Throwable cause) {
        super(message, cause);
    }
}
