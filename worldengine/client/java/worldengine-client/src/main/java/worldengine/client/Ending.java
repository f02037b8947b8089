package worldengine.client;

import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Tells listeners once that something has ended. */
final class Ending {
    private final Set<Runnable> listeners = new LinkedHashSet<>();
    private boolean ended;

    synchronized boolean ended() { return ended; }

    void end() {
        List<Runnable> all;
        synchronized (this) {
            if (ended) return;
            ended = true;
            all = List.copyOf(listeners);
            listeners.clear();
        }
        all.forEach(Runnable::run);
    }

    /** Calls the listener at the end, at once if that was before. The returned function removes it. */
    Runnable onEnd(Runnable listener) {
        synchronized (this) {
            if (!ended) {
                listeners.add(listener);
                return () -> remove(listener);
            }
        }
        listener.run();
        return () -> {};
    }

    private synchronized void remove(Runnable listener) { listeners.remove(listener); }
}
