package worldengine.client;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Queue;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Commits or events as they come. {@code hasNext} blocks until there is one, and returns false after
 * {@link #close}, which another thread may call, and after the end of the followed run. One thread iterates.
 *
 * <p>While no server answers it asks again. If the connection ends for good, it throws an
 * {@link UnavailableException}.
 */
public final class Following<T> implements Iterator<T>, Iterable<T>, AutoCloseable {
    private final Function<Ending, @Nullable List<T>> page;
    private final Ending ending = new Ending();
    private final Queue<T> came = new ArrayDeque<>();
    private boolean over;

    /** Follows pages; a page is null at the end. */
    Following(Function<Ending, @Nullable List<T>> page) {
        this.page = page;
    }

    @Override
    public boolean hasNext() {
        while (came.isEmpty() && !over) {
            var next = ending.ended() ? null : page.apply(ending);
            if (next == null || ending.ended()) over = true;
            else came.addAll(next);
        }
        return !came.isEmpty();
    }

    @Override
    public T next() {
        if (!hasNext()) throw new NoSuchElementException("nothing follows any more");
        return came.remove();
    }

    /** Returns itself: it is iterated over once. */
    @Override
    public Iterator<T> iterator() { return this; }

    /** Ends it. */
    @Override
    public void close() { ending.end(); }
}
