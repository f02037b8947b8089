package worldengine.plugin;

import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import io.nats.client.Message;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;
import worldengine.client.ConnectionSettings;
import worldengine.client.Emitter;
import worldengine.client.Town;
import worldengine.client.WorldEngine;
import worldengine.client.contract.ProposalType;

/**
 * A plugin that applies the commands of its towns; {@link #builder} makes one. It is safe for concurrent use. See the
 * {@linkplain worldengine.plugin package} for its guarantees.
 */
public final class TownPlugin implements AutoCloseable {
    /** Changes the game, or finds the outcome of a command in it. It is called on the game's main thread. */
    @FunctionalInterface
    public interface CommandFunction {
        /** Returns what became of the command. After an exception it is in doubt. */
        Outcome call(Command command) throws Exception;
    }

    /** As a CommandFunction, for changes that take more than a tick: the stage completes when all is done. */
    @FunctionalInterface
    public interface AsyncCommandFunction {
        /** Starts the change on the main thread, and returns at once. */
        CompletionStage<Outcome> call(Command command) throws Exception;
    }

    // Counted from the call of close: until all is over, the begun commands are applied, and the memory is written.
    private static final Duration CLOSE = Duration.ofSeconds(5), APPLIED = Duration.ofSeconds(3),
        WRITTEN = Duration.ofSeconds(4);

    private static final Duration PATIENCE = Duration.ofSeconds(5); // with the game's scheduler

    private final Logger logger;
    private final Memory memory;
    private final Applier applier;
    private final Link link;
    private final Reports reports;
    private final @Nullable ExecutorService ownThread; // instead of a game's main thread
    private boolean closed;

    private TownPlugin(Builder b, AsyncCommandFunction apply, Path file) {
        logger = b.logger;
        var settings = Objects.requireNonNullElseGet(b.settings, ConnectionSettings::fromEnvironment);
        settings.options(b.name); // fails here if a file of it cannot be read
        memory = new Memory(file, b.mostRecords, logger);
        ownThread = b.mainThread == null ? Executors.newSingleThreadExecutor(task -> daemon(task, "worldengine-apply")) : null;
        var executor = b.mainThread == null ? Objects.requireNonNull(ownThread) : b.mainThread;
        var recover = b.recover;
        applier = new Applier(new Applier.Config(apply::call, recover == null ? null : recover::call, Set.copyOf(b.allowed),
            b.queue, b.concurrency, b.retryAfter, logger), memory, new MainThread(executor, b.tickBudget.toNanos(), PATIENCE, logger),
            this::send);
        link = new Link(new Link.Config(settings, b.world, List.copyOf(b.towns), b.name, logger), this::received);
        reports = new Reports(link, logger);
        link.open();
    }

    /** Returns a builder. {@code towns}, {@code memory} and {@code apply} are required. */
    public static Builder builder() { return new Builder(); }

    private void send(String reply, byte[] answer) { link.send(reply, answer); }

    private void received(Message message) {
        try {
            if (message.getReplyTo() == null) throw new JsonParseException("it has no reply subject");
            var command = Command.parse(message.getData(), header(message, "traceparent"), header(message, "tracestate"));
            checkTown(message, command.townId());
            applier.request(command, message.getReplyTo(), link.serving());
        } catch (Command.UnknownType e) {
            refuse(message, e);
        } catch (JsonParseException e) {
            logger.warning("a request that is no command for this plugin is not answered: " + message.getSubject() + ": "
                + e.getMessage());
        } catch (RuntimeException e) {
            logger.log(java.util.logging.Level.SEVERE, "a request failed in the kit, and will be asked again", e);
        }
    }

    private void refuse(Message message, Command.UnknownType unknown) {
        logger.warning("a command is refused, since the engine is newer than this plugin: " + unknown.applyId + ": "
            + unknown.getMessage());
        try {
            checkTown(message, unknown.townId);
            applier.refuseUnknown(unknown.applyId, unknown.attempt, message.getReplyTo());
        } catch (JsonParseException e) {
            logger.warning("it is not answered: " + e.getMessage());
        }
    }

    /** NATS checks the permission for the subject. */
    private void checkTown(Message message, String townId) {
        if (message.getSubject().equals(link.applySubject(townId))) return;
        throw new JsonParseException("it is about the town " + SafeText.line(townId, 64));
    }

    private static @Nullable String header(Message message, String name) {
        return message.hasHeaders() ? message.getHeaders().getFirst(name) : null;
    }

    /**
     * The state of a plugin; {@code toString} is a line for the console.
     *
     * @param connection {@code serving}, or why not
     * @param waiting commands in hand
     * @param applied commands applied since the start
     * @param refused commands refused since the start
     * @param repeated requests answered from the memory
     * @param busy requests answered busy
     * @param remembered commands in the memory
     * @param inDoubt commands in the memory that were begun and have no outcome
     * @param oldest for how long the first of the begun commands has been applied; zero for none
     */
    public record Status(String connection, int waiting, long applied, long refused, long repeated, long busy,
            int remembered, long inDoubt, Duration oldest) {
        @Override
        public String toString() {
            return connection + "; in hand " + waiting + "; since the start " + applied + " applied, " + refused
                + " refused, " + repeated + " repeated, " + busy + " busy; " + remembered + " remembered, " + inDoubt
                + " in doubt" + (oldest.toSeconds() > 0 ? "; one has been applied for " + oldest.toSeconds() + " s" : "");
        }
    }

    /** Returns the state. */
    public Status status() {
        var counts = applier.counts();
        return new Status(link.state(), counts.waiting(), counts.applied(), counts.refused(), counts.repeated(),
            counts.busy(), memory.size(), memory.begun(), counts.oldest());
    }

    /**
     * Reports a change that players made. The function gets the present town, on a thread of the kit, and returns a
     * JSON Merge Patch of its snapshot, or null if the town is as it should be. It is called again after a conflict or
     * a loss of the connection, so it should set members to what the game has.
     *
     * <p>The future completes with the town after the change, or fails if the engine refuses it. <b>Never wait for it
     * while a command of the town is applied</b>: the report waits for the command's answer.
     */
    public CompletableFuture<Town> reportTown(String townId, Function<Town, @Nullable JsonObject> patch) {
        return reports.report(townId, patch);
    }

    /**
     * Returns an emitter of step events of a command's run. It blocks: call it off the main thread, before the command
     * is answered. It throws an EngineException, also if there is no connection.
     */
    public Emitter emitter(Command command) { return reports.emitter(command); }

    /**
     * Returns the client of the present connection, for other calls; null while there is none. Do not keep it: the
     * next connection has another one.
     */
    public @Nullable WorldEngine engine() { return link.engine(); }

    /**
     * Takes no more requests, and waits up to 3 seconds for commands that are begun; others are answered busy. A
     * command that is not finished by then is in doubt at the next start. It ends all threads of the kit within 5
     * seconds, and may be called on the main thread, as in {@code onDisable}.
     */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) return;
            closed = true;
        }
        long called = System.nanoTime();
        int left = applier.close(APPLIED);
        if (left > 0) {
            logger.warning("worldengine: closed while " + left + " commands were being applied: they are in doubt");
        }
        memory.close(left(called, WRITTEN)); // what was done is on the disk before its answer leaves
        reports.close();
        link.close(left(called, CLOSE));
        if (ownThread != null) ownThread.shutdownNow();
    }

    private static Duration left(long called, Duration most) { return most.minusNanos(System.nanoTime() - called); }

    static Thread daemon(Runnable task, String name) {
        var thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    /** Settings of a plugin. */
    public static final class Builder {
        private @Nullable ConnectionSettings settings;
        private String world = "main", name = "worldengine-plugin";
        private @Nullable List<String> chosen;
        private Set<String> towns = Set.of();
        private @Nullable Path memory;
        private int mostRecords = Memory.MOST_RECORDS, queue = 256, concurrency = 16;
        private @Nullable Executor mainThread;
        private Duration tickBudget = Duration.ofMillis(1), retryAfter = Duration.ofMillis(250);
        private @Nullable AsyncCommandFunction apply;
        private @Nullable AsyncCommandFunction recover;
        private Set<ProposalType> allowed = EnumSet.allOf(ProposalType.class);
        private Logger logger = Logger.getLogger("worldengine.plugin");

        private Builder() {}

        /** Connects to these servers, divided by commas, with the user of the environment variables. */
        public Builder connection(String servers) {
            if (isEmpty(servers)) {
                throw new IllegalArgumentException("connection is empty: the servers, such as nats://127.0.0.1:4222");
            }
            return connection(ConnectionSettings.fromEnvironment().withServers(servers));
        }

        /** Connects with these settings; those of the environment variables by default. */
        public Builder connection(ConnectionSettings settings) {
            this.settings = settings;
            return this;
        }

        /** The world's name; {@code main} by default. */
        public Builder world(String world) {
            if (isEmpty(world)) throw new IllegalArgumentException("world is empty: the world's name, such as main");
            this.world = WorldEngine.checkedWorld(world);
            return this;
        }

        /** The ids of the towns that this server hosts. */
        public Builder towns(String... townIds) {
            if (townIds.length == 0) throw new IllegalArgumentException("towns has no id: name the towns, or call allTowns");
            for (var id : townIds) {
                if (isEmpty(id)) throw new IllegalArgumentException("towns has an empty id: each is the id of a town");
            }
            chosen = List.of(townIds);
            return this;
        }

        /**
         * Hosts all towns of the world. It finds another plugin of all towns, but none of some towns: be sure that
         * there is none, or both apply the commands of these towns. A plugin of some towns does find this one.
         */
        public Builder allTowns() {
            chosen = List.of();
            towns = Set.of();
            return this;
        }

        /**
         * The file that remembers the outcome of every command. Its folder is made; {@code <file>.lock} is beside it.
         * Two processes cannot have one file, and a file that is lost means that commands may be applied twice.
         */
        public Builder memory(Path file) {
            memory = file;
            return this;
        }

        /** How many commands are remembered; 20,000 by default. The oldest are forgotten, and also after 30 days. */
        public Builder remember(int commands) {
            mostRecords = above(commands, "remember");
            return this;
        }

        /**
         * Runs the functions on the game's main thread, such as
         * {@code task -> Bukkit.getScheduler().runTask(this, task)}. By default they run on a thread of the kit.
         */
        public Builder mainThread(Executor executor) {
            mainThread = executor;
            return this;
        }

        /** How long the kit calls functions before it lets the main thread go on; 1 ms by default. */
        public Builder tickBudget(Duration budget) {
            if (budget.isNegative() || budget.isZero()) throw new IllegalArgumentException("tickBudget must be above 0");
            tickBudget = budget;
            return this;
        }

        /** Applies a command to the game. */
        public Builder apply(CommandFunction function) {
            return applyAsync(command -> CompletableFuture.completedFuture(function.call(command)));
        }

        /** Applies a command to the game over several ticks. */
        public Builder applyAsync(AsyncCommandFunction function) {
            apply = function;
            return this;
        }

        /**
         * Finds the outcome of a command in doubt in the game, and may finish it. It may return {@code refused} or
         * {@code notBegun} only if nothing of the command is in the game.
         */
        public Builder recover(CommandFunction function) {
            return recoverAsync(command -> CompletableFuture.completedFuture(function.call(command)));
        }

        /** As {@link #recover}, over several ticks. */
        public Builder recoverAsync(AsyncCommandFunction function) {
            recover = function;
            return this;
        }

        /** The types of commands that this server applies; the others are refused. All by default. */
        public Builder allow(ProposalType... types) {
            if (Arrays.asList(types).contains(null)) throw new IllegalArgumentException("allow has a type that is null");
            allowed = EnumSet.noneOf(ProposalType.class);
            allowed.addAll(Arrays.asList(types));
            return this;
        }

        /** How many commands may be in hand; others are answered busy. 256 by default. */
        public Builder queue(int commands) {
            queue = above(commands, "queue");
            return this;
        }

        /** How many towns may have their commands applied at once; 16 by default. */
        public Builder concurrency(int towns) {
            concurrency = above(towns, "concurrency");
            return this;
        }

        /** The engine's pause after busy and in-progress; 250 ms by default. */
        public Builder retryAfter(Duration pause) {
            if (pause.isNegative() || pause.compareTo(Duration.ofHours(1)) > 0) {
                throw new IllegalArgumentException("retryAfter must be from 0 to 1 hour, not " + pause);
            }
            retryAfter = pause;
            return this;
        }

        /** The name of the connection, which operators see; {@code worldengine-plugin} by default. */
        public Builder name(String name) {
            this.name = name;
            return this;
        }

        /** Where the kit logs, such as {@code getLogger()} of a Bukkit plugin. */
        public Builder logger(Logger logger) {
            this.logger = logger;
            return this;
        }

        /**
         * Opens the memory, and connects in the background. It throws an {@link IllegalArgumentException} if a setting
         * is missing or wrong, and a {@link MemoryException} if the memory cannot be used.
         */
        public TownPlugin start() {
            if (apply == null) throw new IllegalArgumentException("apply is missing: the function that changes the game");
            if (memory == null) throw new IllegalArgumentException("memory is missing: the file that remembers commands");
            if (chosen == null) throw new IllegalArgumentException("towns is missing: the ids of the hosted towns, or allTowns");
            towns = new LinkedHashSet<>(chosen);
            return new TownPlugin(this, apply, memory);
        }

        private static boolean isEmpty(@Nullable String text) { return text == null || text.isBlank(); }

        private static int above(int value, String name) {
            if (value <= 0) throw new IllegalArgumentException(name + " must be above 0, not " + value);
            return value;
        }
    }
}
