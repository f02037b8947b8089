package worldengine.check;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.LockSupport;

/** A game's main thread: in each tick of 50 ms it runs the tasks that came before, and counts how long they take. */
final class Ticks implements Executor {
    private static final long TICK = 50_000_000;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
    private final List<Long> held = new ArrayList<>(), used = new ArrayList<>(); // ns of ticks that had tasks

    Ticks() {
        var thread = new Thread(this::run, "game");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void execute(Runnable task) { tasks.add(task); }

    private void run() {
        for (long next = System.nanoTime();; next += TICK) {
            for (long left; (left = next - System.nanoTime()) > 0;) LockSupport.parkNanos(left);
            long began = System.nanoTime(), processor = THREADS.getCurrentThreadCpuTime();
            int some = tasks.size(); // those that they add run in the next tick
            for (int i = 0; i < some; i++) tasks.remove().run();
            if (some == 0) continue;
            synchronized (held) {
                held.add(System.nanoTime() - began);
                used.add(THREADS.getCurrentThreadCpuTime() - processor);
            }
        }
    }

    @Override
    public String toString() {
        synchronized (held) {
            if (held.isEmpty()) return "no tick had a task";
            return held.size() + " ticks with tasks, held for " + micros(held) + "; processor time " + micros(used);
        }
    }

    /** Returns the median, the 99th percentile and the most, in microseconds. */
    private static String micros(List<Long> nanos) {
        Collections.sort(nanos);
        return micros(nanos, 0.5) + " µs at the median, " + micros(nanos, 0.99) + " µs at the 99th percentile, "
            + micros(nanos, 1) + " µs at most";
    }

    private static long micros(List<Long> nanos, double quantile) {
        return nanos.get((int) (quantile * (nanos.size() - 1))) / 1000;
    }
}
