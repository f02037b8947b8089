package worldengine.client;

import com.google.gson.JsonObject;
import io.nats.client.Message;
import io.nats.client.impl.Headers;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;

/** A real server with the towns of the examples, which a test can kill and start again. */
final class World implements AutoCloseable {
    private final Path data = Files.createTempDirectory("worldengine-client-");
    private final String address;
    private Process process;
    String url = "";

    World() throws IOException {
        try (var free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            address = "127.0.0.1:" + free.getLocalPort();
        }
        start();
    }

    void start() throws IOException {
        process = new ProcessBuilder(System.getProperty("handoffd"), "--listen", address, "--data",
            data.resolve("data").toString(), "--world-file", System.getProperty("worlds") + "/worlds/frontier.json",
            "--http", "off", "--log-level", "ERROR").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        var lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null;) {
            if (!line.startsWith("ready ")) continue;
            url = line.substring("ready ".length());
            return;
        }
        throw new IOException("handoffd is not ready");
    }

    /** Ends the process, as by kill -9. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor(10, TimeUnit.SECONDS);
    }

    @Override
    public void close() throws Exception {
        kill();
        try (var files = Files.walk(data)) {
            for (var file : files.sorted(Comparator.reverseOrder()).toList()) Files.delete(file);
        }
    }

    /** An answer of a fake world: a body, or an error with a status, a code and a pause. */
    record Reply(String body, int status, String code, int retryAfterMs) {
        static Reply of(Object... members) { return new Reply(Json.of(members).toString(), 0, "", 0); }

        static Reply error(int status, String code, int retryAfterMs) {
            return new Reply(Json.of("error", Json.of("code", code, "message", code, "details",
                List.of(Json.of("path", "/x", "message", "bad")))).toString(), status, code, retryAfterMs);
        }
    }

    /**
     * Answers a verb of a world that no server has: the n-th request, from 1, with the function's reply; null is
     * silence. It returns the bodies of the requests.
     */
    static List<String> fake(WorldEngine engine, String world, String verb,
            BiFunction<Integer, JsonObject, Reply> answer) throws Exception {
        var asked = Collections.synchronizedList(new ArrayList<String>());
        engine.connection().createDispatcher(message -> {
            asked.add(new String(message.getData(), StandardCharsets.UTF_8));
            var reply = answer.apply(asked.size(), Json.object(message.getData()));
            if (reply != null) respond(engine, message, reply);
        }).subscribe("worldengine.v1." + world + "." + verb);
        engine.connection().flush(Duration.ofSeconds(10));
        return asked;
    }

    private static void respond(WorldEngine engine, Message message, Reply reply) {
        var headers = new Headers();
        headers.put("Run-Id", "run-of-the-reply");
        if (reply.status > 0) {
            headers.put("Nats-Service-Error-Code", Integer.toString(reply.status));
            headers.put("Nats-Service-Error", reply.code);
            if (reply.retryAfterMs > 0) headers.put("Retry-After-Ms", Integer.toString(reply.retryAfterMs));
        }
        engine.connection().publish(message.getReplyTo(), headers, reply.body.getBytes(StandardCharsets.UTF_8));
    }
}
