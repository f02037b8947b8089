/**
 * A client of the world engine, for agents and plugins, over NATS.
 *
 * <p>{@link worldengine.client.WorldEngine} has the calls. They block, with a deadline, and are safe for
 * concurrent use; those whose names end in {@code Async} return a future instead. Every failure is a
 * {@link worldengine.client.EngineException}: {@link worldengine.client.ReplyException} if the server
 * refused the request, {@link worldengine.client.UnavailableException} if no valid answer came. Times are
 * {@link java.time.Duration}s; JSON is Gson's, which callers must not change after they gave it.
 */
@NullMarked
package worldengine.client;

import org.jspecify.annotations.NullMarked;
