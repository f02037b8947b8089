package worldengine.plugin;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.logging.Logger;

/**
 * Runs short tasks on the game's main thread, for at most a budget of time before it lets the game go on: the
 * rest runs when the game's scheduler comes to it again, as a rule in the next tick.
 */
final class MainThread {
    /** The task was not run, since the game's scheduler does not accept tasks, or the plugin is closed. */
    static final class NotRun extends RuntimeException {
        private static final long serialVersionUID = 1;

        NotRun(Throwable cause) { super("the game's scheduler does not accept tasks: " + cause, cause); }

        NotRun() { super("the plugin is closed"); }
    }

    private record Task<T>(Callable<T> call, CompletableFuture<T> done) {
        void run() {
            try {
                done.complete(call.call());
            } catch (Throwable e) { // the author's function may throw anything
                done.completeExceptionally(e);
            }
        }
    }

    private final Executor executor;
    private final long budgetNanos;
    private final Queue<Task<?>> tasks = new ArrayDeque<>();
    private final Duration patience;
    private final Logger logger;
    private boolean scheduled, watched, closed;
    private long runs;

    /** Tasks that the executor accepts and does not run within {@code patience} are given to it again. */
    MainThread(Executor executor, long budgetNanos, Duration patience, Logger logger) {
        this.executor = executor;
        this.budgetNanos = budgetNanos;
        this.patience = patience;
        this.logger = logger;
    }

    /** Calls a function on the main thread; the future fails with NotRun if it was not called. */
    <T> CompletableFuture<T> call(Callable<T> call) {
        var task = new Task<>(call, new CompletableFuture<>());
        synchronized (this) {
            if (closed) return CompletableFuture.failedFuture(new NotRun());
            tasks.add(task);
            if (scheduled) return task.done;
            scheduled = true;
        }
        schedule();
        watch();
        return task.done;
    }

    private void schedule() {
        try {
            executor.execute(this::run);
        } catch (RuntimeException e) { // as of a Bukkit plugin that is being disabled
            cancel(new NotRun(e));
        }
    }

    private void watch() {
        long seen;
        synchronized (this) {
            if (watched || !scheduled) return;
            watched = true;
            seen = runs;
        }
        CompletableFuture.delayedExecutor(patience.toMillis(), TimeUnit.MILLISECONDS).execute(() -> look(seen));
    }

    /** Schedules again if nothing ran since; a second run in a tick finds nothing to do. */
    private void look(long seen) {
        boolean lost;
        synchronized (this) {
            watched = false;
            lost = scheduled && runs == seen && !tasks.isEmpty();
        }
        if (lost) {
            logger.warning("the game's scheduler has not run the kit's task for " + patience.toMillis()
                + " ms, so it gets it again: the main thread stands still, or the executor of mainThread drops tasks");
            schedule();
        }
        watch();
    }

    private void run() {
        synchronized (this) {
            runs++;
        }
        long until = System.nanoTime() + budgetNanos;
        do {
            Task<?> task;
            synchronized (this) {
                task = tasks.poll();
                if (task == null) scheduled = false;
            }
            if (task == null) return;
            task.run();
        } while (System.nanoTime() - until < 0);
        schedule();
    }

    /** Runs no more tasks; those that have not run fail with NotRun. */
    void close() {
        synchronized (this) {
            closed = true;
        }
        cancel(new NotRun());
    }

    private void cancel(NotRun why) {
        List<Task<?>> all;
        synchronized (this) {
            all = new ArrayList<>(tasks);
            tasks.clear();
            scheduled = false;
        }
        all.forEach(task -> task.done.completeExceptionally(why));
    }
}
