package worldengine.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import worldengine.client.Canonical;
import worldengine.client.contract.ProposalType;

/** The connection, with a server that does what a real one cannot be made to do. */
@Timeout(60)
class LinkTest {
    private static final String TOKEN = Canonical.townToken("t"), APPLY = "worldengine.v1.main.apply." + TOKEN;

    /** A NATS server for one client, as far as the kit needs one. */
    private static final class Server implements AutoCloseable {
        private final ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        private final Map<String, String> subscriptions = new ConcurrentHashMap<>(); // sid by subject
        final BlockingQueue<String> answers = new LinkedBlockingQueue<>(); // published to a reply subject "to.*"
        volatile boolean anotherHost, frozen, commandAtOnce;
        private volatile Socket client;

        Server() throws IOException {
            var thread = new Thread(this::accept, "server");
            thread.setDaemon(true);
            thread.start();
        }

        String url() { return "nats://127.0.0.1:" + listener.getLocalPort(); }

        private void accept() {
            while (!listener.isClosed()) {
                try (var accepted = listener.accept()) {
                    client = accepted;
                    subscriptions.clear();
                    write("INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"headers\":true,\"max_payload\":1048576}\r\n");
                    serve(new BufferedInputStream(accepted.getInputStream()));
                } catch (IOException e) { // the client or the test has gone
                }
            }
        }

        private void serve(InputStream in) throws IOException {
            for (String line; !(line = line(in)).isEmpty();) {
                while (frozen) Thread.onSpinWait();
                var words = line.split(" ");
                switch (words[0]) {
                    case "PING" -> write("PONG\r\n");
                    case "SUB" -> subscribed(words[1], words[words.length - 1]);
                    case "PUB", "HPUB" -> published(words, in);
                    default -> { }
                }
            }
        }

        private void subscribed(String subject, String sid) throws IOException {
            subscriptions.put(subject, sid);
            if (commandAtOnce && subject.equals(APPLY)) command(2);
        }

        private void published(String[] words, InputStream in) throws IOException {
            String payload = new String(in.readNBytes(Integer.parseInt(words[words.length - 1]) + 2), StandardCharsets.UTF_8);
            if (words[1].startsWith("to.")) {
                answers.add(words[1] + " " + payload.replaceAll("(?s).*\"status\":\"([^\"]*)\".*", "$1"));
            }
            if (words[1].endsWith(".town.get")) deliver(words[2], "", "{\"townId\":\"t\"}");
            if (!words[1].contains(".hosts.")) return;
            if (anotherHost) deliver(words[2], "", "{\"name\":\"another\"}");
            else if (!payload.contains("Asker")) no(words[2]);
        }

        private void no(String inbox) throws IOException {
            write("HMSG " + inbox + " " + sid(inbox) + " 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
        }

        void command(int id) throws IOException {
            deliver(APPLY, "to." + id + " ",
                new String(ApplierTest.request("t", id, 1, 60_000, ProposalType.TOWNSFOLK_TALK), StandardCharsets.UTF_8));
        }

        private void deliver(String subject, String reply, String body) throws IOException {
            write("MSG " + subject + " " + sid(subject) + " " + reply + body.length() + "\r\n" + body + "\r\n");
        }

        private String sid(String subject) {
            return subscriptions.entrySet().stream()
                .filter(s -> s.getKey().equals(subject) || s.getKey().endsWith("*")
                    && subject.startsWith(s.getKey().substring(0, s.getKey().length() - 1)))
                .map(Map.Entry::getValue).findAny().orElseThrow();
        }

        void write(String text) throws IOException {
            OutputStream out = client.getOutputStream();
            synchronized (this) {
                out.write(text.getBytes(StandardCharsets.UTF_8));
            }
        }

        void drop() throws IOException { client.close(); }

        private static String line(InputStream in) throws IOException {
            var line = new StringBuilder();
            for (int b; (b = in.read()) >= 0 && b != '\n';) line.append((char) b);
            return line.toString().strip();
        }

        @Override
        public void close() throws IOException {
            frozen = false;
            listener.close();
            if (client != null) client.close();
        }
    }

    @TempDir
    private Path dir;
    private Server server;
    private TownPlugin plugin;
    private final BlockingQueue<String> applied = new LinkedBlockingQueue<>(), logged = new LinkedBlockingQueue<>();
    private CompletableFuture<Outcome> outcome = CompletableFuture.completedFuture(Outcome.applied());

    @BeforeEach
    void start() throws IOException {
        var logger = Logger.getAnonymousLogger();
        logger.setUseParentHandlers(false);
        logger.addHandler(ApplierTest.handler(logged));
        server = new Server();
        plugin = TownPlugin.builder().connection(server.url()).towns("t").memory(dir.resolve("m")).logger(logger)
            .applyAsync(command -> {
                applied.add(command.applyId());
                return outcome;
            }).start();
    }

    @AfterEach
    void stop() throws IOException {
        plugin.close();
        server.close();
    }

    private void logs(String part) throws InterruptedException {
        for (String line; !(line = String.valueOf(logged.poll(20, TimeUnit.SECONDS))).contains(part);) {
            assertTrue(!line.equals("null") && !line.contains("serving"), line + " instead of " + part);
        }
    }

    private void answers(String expected) throws InterruptedException {
        assertEquals(expected, server.answers.poll(20, TimeUnit.SECONDS));
    }

    @Test
    void afterALossOfTheConnection_itAsksAgainBeforeItServes() throws Exception {
        logs("serving");
        server.command(1);
        answers("to.1 applied");
        server.anotherHost = true;
        server.commandAtOnce = true;
        server.drop();
        logs("another plugin hosts the town");
        server.commandAtOnce = false;
        server.anotherHost = false;
        logs("serving");
        server.answers.removeIf("to.2 busy"::equals);
        server.command(3);
        answers("to.3 applied");
        assertEquals(2, applied.size(), "the command that came before the question was not begun");
    }

    @Test
    void aDenialOfAnotherSubject_isLoggedAlone() throws Exception {
        logs("serving");
        server.write("-ERR 'Permissions Violation for Publish to \"_INBOX.old.1\"'\r\n");
        logs("refuses this user a right");
        server.command(1);
        answers("to.1 applied");
        server.write("-ERR 'Permissions Violation for Subscription to \"" + APPLY + "\"'\r\n");
        logs("away: NATS refuses");
    }

    @Test
    void aFunctionOfAReportThatThrows_isCalledOnce() throws Exception {
        logs("serving");
        var calls = new LinkedBlockingQueue<String>();
        var report = plugin.reportTown("t", town -> {
            calls.add(town.townId());
            throw new IllegalStateException("a bug");
        });
        var error = assertThrows(ExecutionException.class, () -> report.get(20, TimeUnit.SECONDS));
        assertEquals("a bug", error.getCause().getMessage());
        assertEquals("t", plugin.reportTown("t", town -> null).get(20, TimeUnit.SECONDS).townId());
        assertEquals(1, calls.size());
        logs("failed: java.lang.IllegalStateException: a bug");
    }

    @Test
    void close_isBounded_withAFrozenServerAndACommandBegun() throws Exception {
        outcome = new CompletableFuture<>();
        logs("serving");
        server.command(1);
        assertTrue(applied.poll(20, TimeUnit.SECONDS) != null);
        server.frozen = true;
        var report = plugin.reportTown("t", town -> null);
        long began = System.nanoTime();
        plugin.close();
        assertTrue(System.nanoTime() - began < TimeUnit.MILLISECONDS.toNanos(6500));
        assertTrue(report.isCompletedExceptionally());
    }
}
