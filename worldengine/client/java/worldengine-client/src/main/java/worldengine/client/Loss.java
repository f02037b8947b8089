package worldengine.client;

/**
 * Commits may be missing.
 *
 * @param reason {@code GAP}: the log no longer keeps some. {@code DAMAGED}: one is unreadable, and is returned
 *     without events. {@code INVALID_CURSOR}: the log has lost its end or was replaced by an older one, and
 *     following goes on at its end
 * @param cursor where following goes on
 */
public record Loss(String reason, String cursor) {}
