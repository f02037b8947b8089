package worldengine.plugin;

import io.nats.client.Connection;
import io.nats.client.ConnectionListener.Events;
import io.nats.client.Dispatcher;
import io.nats.client.Message;
import io.nats.client.MessageHandler;
import io.nats.client.impl.Headers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.logging.Logger;
import java.util.stream.Stream;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import org.jspecify.annotations.Nullable;
import worldengine.client.Canonical;
import worldengine.client.ConnectionSettings;
import worldengine.client.EngineException;
import worldengine.client.Json;
import worldengine.client.WorldEngine;

/**
 * The connection to NATS. It is made in the background, and again without end, with growing pauses. It serves the
 * towns while no other plugin hosts one of them. It logs changes of its state, not attempts.
 */
final class Link implements AutoCloseable {
    private static final Duration ANSWER = Duration.ofSeconds(1), FLUSH = Duration.ofSeconds(5);
    private static final String RECONNECTED = "reconnected";
    private static final long FIRST_PAUSE = 250, LONGEST_PAUSE = 10_000;
    private static final long MOST_PENDING = 4096, MOST_PENDING_BYTES = 32 << 20;

    /** What it serves; {@code towns} is empty for all towns of the world. */
    record Config(ConnectionSettings settings, String world, List<String> towns, String name, Logger logger) {}

    private final Config config;
    private final MessageHandler received;
    private final CountDownLatch closing = new CountDownLatch(1);
    private final Thread thread = new Thread(this::run, "worldengine-plugin");
    private volatile @Nullable WorldEngine engine;
    private volatile String state = "connecting";
    private volatile boolean serving;

    Link(Config config, MessageHandler received) {
        this.config = config;
        this.received = received;
        thread.setDaemon(true);
    }

    void open() { thread.start(); }

    /** The state, for people: {@code serving}, or why not. */
    String state() { return state; }

    /** Whether commands may be begun: it is connected, and no other plugin was found since. */
    boolean serving() { return serving; }

    /** The client of the present connection; null if there is none yet. */
    @Nullable WorldEngine engine() { return engine; }

    /** Sends an answer. If there is no connection, the engine asks again. */
    void send(String reply, byte[] answer) {
        var present = engine;
        if (present == null) return;
        try {
            present.connection().publish(reply, answer);
        } catch (IllegalArgumentException e) {
            config.logger.severe("an answer cannot be sent, and its command waits: raise max_payload of the NATS server "
                + "above " + answer.length + " bytes, and restart: " + e.getMessage());
        } catch (IllegalStateException e) {
            config.logger.fine(() -> "an answer could not be sent, and will be asked for again: " + e.getMessage());
        }
    }

    private void run() {
        for (int failures = 0; closing.getCount() > 0; failures++) {
            try {
                if (serve()) failures = 0;
            } catch (EngineException e) {
                become("away: " + e.getMessage());
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                become("broken: " + e);
            }
            long pause = Math.min(FIRST_PAUSE << Math.min(failures, 10), LONGEST_PAUSE);
            // A random part, so that two plugins of one town do not find each other for ever.
            await(closing, pause + ThreadLocalRandom.current().nextLong(pause));
        }
    }

    /** Serves the towns over a new connection until that is closed for good. It returns whether it has served. */
    private boolean serve() throws InterruptedException {
        try (var client = WorldEngine.connect(config.settings, config.world, config.name)) {
            var events = new LinkedBlockingQueue<String>();
            var connection = client.connection();
            connection.addConnectionListener((c, event) -> happened(c, event, events));
            try (var denied = client.onPermissionDenied(text -> denied(text, events))) {
                return serve(client, connection, events);
            } finally {
                serving = false;
                engine = null;
            }
        }
    }

    /** The events are {@link #RECONNECTED}, or why the connection is over. */
    private boolean serve(WorldEngine client, Connection connection, BlockingQueue<String> events)
            throws InterruptedException {
        String asker = UUID.randomUUID().toString();
        if (another(connection, null)) return false;
        engine = client;
        var dispatcher = subscribe(connection, asker);
        try {
            String event = RECONNECTED;
            for (; event.equals(RECONNECTED); event = events.take()) {
                flush(connection);
                // Two that start at the same moment do not find each other before, but at least one does now; and
                // another may have come while the connection was lost.
                if (another(connection, asker)) return false;
                serveUnlessOver(connection, events);
            }
            if (closing.getCount() > 0) become("away: " + event);
            return true;
        } finally {
            if (connection.getStatus() != Connection.Status.CLOSED) connection.closeDispatcher(dispatcher);
        }
    }

    private synchronized void serveUnlessOver(Connection connection, BlockingQueue<String> events) {
        serving = connection.getStatus() == Connection.Status.CONNECTED && events.isEmpty();
        if (serving) become("serving");
    }

    private synchronized void happened(Connection connection, Events event, BlockingQueue<String> events) {
        switch (event) {
            case DISCONNECTED -> {
                var present = engine;
                if (present == null || present.connection() != connection) return; // a late event of an earlier one
                serving = false;
                become("away: the connection was lost");
            }
            case RECONNECTED -> events.add(RECONNECTED);
            case CLOSED -> events.add("the connection was closed");
            default -> { }
        }
    }

    /** Ends the connection if the right is one that serving needs; another one concerns a single call or answer. */
    private void denied(String text, BlockingQueue<String> events) {
        String lower = text.toLowerCase(Locale.ROOT);
        boolean own = Stream.concat(tokens("*").stream(), tokens("=all").stream())
            .flatMap(token -> Stream.of(subject("apply", token), subject("hosts", token)))
            .anyMatch(subject -> lower.contains('"' + subject.toLowerCase(Locale.ROOT) + '"'));
        if (own) events.add("NATS refuses this user a right that the role plugin of these towns has: " + text);
        else config.logger.warning("worldengine: NATS refuses this user a right: " + text);
    }

    private Dispatcher subscribe(Connection connection, String asker) {
        var body = new JsonObject();
        body.addProperty("name", config.name);
        byte[] host = body.toString().getBytes(StandardCharsets.UTF_8);
        var dispatcher = connection.createDispatcher(received);
        dispatcher.setPendingLimits(MOST_PENDING, MOST_PENDING_BYTES);
        MessageHandler answers = question -> {
            boolean own = question.hasHeaders() && asker.equals(question.getHeaders().getFirst("Asker"));
            if (question.getReplyTo() != null && !own) connection.publish(question.getReplyTo(), host);
        };
        for (var token : tokens("*")) {
            dispatcher.subscribe(subject("apply", token));
            dispatcher.subscribe(subject("hosts", token), answers);
        }
        // A plugin of all towns, which would get the commands of these too, asks so.
        if (!config.towns.isEmpty()) dispatcher.subscribe(subject("hosts", "=all"), answers);
        return dispatcher;
    }

    private static void flush(Connection connection) throws InterruptedException {
        try {
            connection.flush(FLUSH);
        } catch (TimeoutException e) { // the state says so after the loss of the connection
        }
    }

    /** Returns whether another plugin hosts a town of this one. Both would apply its commands. */
    private boolean another(Connection connection, @Nullable String asker) throws InterruptedException {
        var headers = new Headers();
        if (asker != null) headers.put("Asker", asker);
        var tokens = tokens("=all");
        var asked = new ArrayList<CompletableFuture<Message>>();
        for (var token : tokens) {
            asked.add(connection.requestWithTimeout(subject("hosts", token), headers, new byte[0], ANSWER));
        }
        String found = null;
        for (int i = 0; i < tokens.size(); i++) {
            String name = answer(asked.get(i));
            if (name != null) found = "another plugin hosts the town " + tokens.get(i) + ": end one of the two; it is " + name;
        }
        if (found != null) become(found);
        return found != null;
    }

    /** Returns the name of the plugin that answers; null if none does within a second. */
    private static @Nullable String answer(CompletableFuture<Message> asked) throws InterruptedException {
        try {
            String name = Json.text(Json.object(asked.get(2 * ANSWER.toMillis(), TimeUnit.MILLISECONDS).getData()), "name");
            return name == null ? "without a name" : SafeText.line(name, 64);
        } catch (JsonParseException e) {
            return "without a name";
        } catch (ExecutionException | TimeoutException | java.util.concurrent.CancellationException e) {
            return null; // no responders, or no answer
        }
    }

    private List<String> tokens(String all) {
        if (config.towns.isEmpty()) return List.of(all);
        return config.towns.stream().map(Canonical::townToken).distinct().toList();
    }

    private String subject(String kind, String token) {
        return "worldengine.v1." + config.world + "." + kind + "." + token;
    }

    /** Returns the subject of a town's commands. */
    String applySubject(String townId) { return subject("apply", Canonical.townToken(townId)); }

    private synchronized void become(String next) {
        if (next.equals(state)) return;
        state = next;
        if (next.equals("serving")) config.logger.info("worldengine: serving " + served());
        else config.logger.warning("worldengine: " + next);
    }

    private String served() {
        return (config.towns.isEmpty() ? "all towns" : config.towns.size() + " towns") + " of the world " + config.world
            + " at " + config.settings;
    }

    private static void await(CountDownLatch latch, long ms) {
        try {
            latch.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) { // only close interrupts, after the latch
        }
    }

    @Override
    public void close() { close(FLUSH); }

    /** Closes the connection, after the answers have left if the server receives them within half of the time. */
    void close(Duration wait) {
        long until = System.nanoTime() + wait.toNanos();
        closing.countDown();
        try {
            var present = engine;
            if (present != null) close(present.connection(), wait.dividedBy(2));
            thread.interrupt();
            thread.join(Math.max(1, (until - System.nanoTime()) / 1_000_000));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        state = "closed";
    }

    private static void close(Connection connection, Duration wait) throws InterruptedException {
        try {
            if (connection.getStatus() == Connection.Status.CONNECTED && !wait.isNegative()) connection.flush(wait);
        } catch (TimeoutException | IllegalStateException e) { // the server does not receive: nothing can leave
        }
        connection.close();
    }
}
