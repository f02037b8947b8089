package worldengine.client;

import io.nats.client.Connection;
import io.nats.client.Message;
import io.nats.client.impl.Headers;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;
import com.google.gson.JsonParseException;
import io.nats.client.JetStreamStatusException;
import org.jspecify.annotations.Nullable;
import worldengine.client.contract.ErrorCode;

/**
 * One request with its repetitions: if no answer comes, and after 429 and 503 if the server says so, a
 * random time later. It ends with the answer to any attempt.
 */
final class Exchange {
    /** How long the first attempt waits for its answer before the next one; the time doubles up to the longest. */
    private static final long RESEND = 2000, LONGEST_RESEND = 30_000;
    /** The pause if no server is subscribed. */
    private static final long ABSENT = 250;

    /** An answer; {@code doubt} means that an earlier attempt may have been carried out. */
    record Answer(Message message, boolean doubt) {}

    /** What happens to the request, or a timer that is due if it is null. */
    private sealed interface Event {}
    private record Answered(Message message) implements Event {}
    private record Failed(Throwable cause) implements Event {}
    private record Denied(String text) implements Event {}
    private record Reconnected() implements Event {}
    private record Looked(@Nullable UnavailableException waits) implements Event {}
    private record Ended() implements Event {}

    /**
     * The request, and what its repetitions need.
     *
     * @param timeout the time for all of it in milliseconds; {@code waitMs} of it the server may wait
     * @param safe it may be repeated although it may have been carried out
     * @param served whether a server has answered on this connection before
     * @param waits is called before a repetition because no answer came; returns an error if the request waits
     * @param refused is called with each refusal after which the request is repeated
     */
    record Request(String subject, byte[] payload, Headers headers, long timeout, long waitMs, boolean safe,
            boolean served, Supplier<@Nullable UnavailableException> waits, Consumer<EngineException> refused) {}

    private final WorldEngine engine;
    private final Connection connection;
    private final Executor executor;
    private final Request request;
    private final LinkedBlockingQueue<Event> events = new LinkedBlockingQueue<>();
    private final long deadline;
    private long dueAt, interval;
    private int unanswered;
    private boolean doubt, looking, answered;
    private @Nullable UnavailableException paused;
    private @Nullable EngineException lastError;

    Exchange(WorldEngine engine, Connection connection, Executor executor, Request request) {
        this.engine = engine;
        this.connection = connection;
        this.executor = executor;
        this.request = request;
        deadline = now() + request.timeout;
        interval = request.waitMs + Math.min(RESEND, (request.timeout - request.waitMs) / 2);
    }

    /** Blocks until it is answered or fails. An interrupt, or the end of {@code ending}, aborts it. */
    Answer answer(Ending ending) {
        var removals = List.of(
            engine.onReconnect(() -> events.add(new Reconnected())),
            engine.onDenied(text -> events.add(new Denied(text))),
            engine.closing().onEnd(() -> events.add(new Ended())),
            ending.onEnd(() -> events.add(new Ended())));
        try {
            attempt();
            for (;;) {
                var event = events.poll(Math.max(0, dueAt - now()), TimeUnit.MILLISECONDS);
                var answer = happened(event);
                if (answer != null) return answer;
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new UnavailableException(UnavailableException.ABORTED, "given up by an interrupt", e);
        } finally {
            removals.forEach(Runnable::run);
        }
    }

    private @Nullable Answer happened(@Nullable Event event) {
        if (event == null) due();
        else if (event instanceof Answered reply) return answered(reply.message);
        else if (event instanceof Failed failure) failed(failure.cause);
        else if (event instanceof Looked look) looked(look.waits);
        else if (event instanceof Ended) throw engine.ended();
        else if (event instanceof Denied denied) {
            if (isAbout(denied.text)) throw denied(denied.text);
        } else if (request.safe && unanswered > 0 && left() > 0) attempt(); // after a reconnection
        return null;
    }

    private void attempt() {
        if (unanswered > 0) {
            if (!request.safe) { // it may have been carried out
                dueIn(left());
                return;
            }
            doubt = true;
        }
        unanswered++;
        send();
        dueIn(request.safe ? interval : left());
        interval = Math.min(2 * interval, LONGEST_RESEND);
    }

    private void send() {
        long most = connection.getMaxPayload();
        if (most > 0 && request.payload.length > most) {
            throw new ReplyException(413, "PAYLOAD_TOO_LARGE", "the request has " + request.payload.length
                + " bytes, this NATS server takes " + most, List.of(), Duration.ZERO, null);
        }
        try {
            connection.requestWithTimeout(request.subject, request.headers, request.payload,
                Duration.ofMillis(Math.max(1, left()))).whenComplete((message, error) ->
                    events.add(error == null ? new Answered(message) : new Failed(error)));
        } catch (IllegalStateException e) { // the connection is closed, or buffers no more while it is away
            throw new UnavailableException(UnavailableException.CONNECTION, "the connection failed: " + e.getMessage(), e);
        }
    }

    private @Nullable Answer answered(Message message) {
        unanswered--;
        answered = true;
        var refused = refusal(message);
        if (refused == null) return new Answer(message, doubt);
        long pause = refused.retryAfter().toMillis(), rest = left() - pause;
        boolean repeatable = pause > 0 && (refused.status() == 429 || refused.status() == 503 && request.safe);
        if (!repeatable || rest <= 0) throw refused;
        if (refused.status() == 503) doubt = true; // the handoff may be stored, and wait for the end of a pause
        lastError = refused;
        request.refused.accept(refused);
        // Other clients may have been refused at the same moment, so the pause has a random part.
        dueIn(pause + ThreadLocalRandom.current().nextLong(1 + Math.min(pause, rest / 2)));
        return null;
    }

    private void failed(Throwable error) {
        var cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        if (!(cause instanceof JetStreamStatusException status) || status.getStatus().getCode() != 503) {
            if (cause instanceof CancellationException) return; // unanswered until the deadline
            throw new UnavailableException(UnavailableException.CONNECTION, "the connection failed: " + cause.getMessage(),
                cause);
        }
        unanswered--;
        var absent = new UnavailableException(UnavailableException.NO_RESPONDERS, "no server answers on "
            + request.subject + ": start handoffd with this world, or use the world that it serves", cause);
        // A server that has an unanswered attempt was there, too.
        boolean wasThere = request.served || answered || unanswered > 0;
        if (!wasThere || ABSENT >= left()) throw absent;
        lastError = absent;
        dueIn(ABSENT);
    }

    private void looked(@Nullable UnavailableException waits) {
        looking = false;
        paused = waits;
        if (left() <= 0) throw late();
        if (unanswered == 0) return; // it was refused meanwhile, and is due after the pause
        if (waits == null) {
            attempt();
        } else {
            request.refused.accept(waits);
            dueIn(RESEND); // the handoff waits in the town's queue
        }
    }

    private void due() {
        if (left() <= 0) throw late();
        if (unanswered > 0 && request.safe && !looking) {
            looking = true;
            executor.execute(() -> events.add(new Looked(look())));
            dueIn(left());
        } else if (unanswered == 0 || !request.safe) {
            attempt();
        } else {
            dueIn(left());
        }
    }

    private @Nullable UnavailableException look() {
        try {
            return request.waits.get();
        } catch (EngineException e) {
            return null; // the server does not answer
        }
    }

    private EngineException late() {
        if (lastError != null && (unanswered == 0 || lastError.code().equals(ErrorCode.EXECUTION_IN_PROGRESS))) return lastError;
        if (paused != null) return paused;
        // The attempt without an answer waits for the same reason.
        if (lastError != null && ErrorCode.WAIT_REASONS.contains(lastError.code())) return lastError;
        return new UnavailableException(UnavailableException.TIMEOUT, "no answer on " + request.subject + " within "
            + request.timeout + " ms; the request may have been carried out");
    }

    /** Returns whether a violation of permissions is about this subject, or about reply subjects. */
    private boolean isAbout(String text) {
        return text.contains('"' + request.subject + '"') || text.toLowerCase(java.util.Locale.ROOT).contains("subscription");
    }

    private UnavailableException denied(String text) {
        return new UnavailableException(UnavailableException.PERMISSION_DENIED, "this user may not ask on "
            + request.subject + ", or not read the answer in its inbox: use the inbox prefix _INBOX_<user>; NATS says: "
            + text);
    }

    private void dueIn(long ms) { dueAt = now() + Math.max(1, Math.min(ms, left())); }

    private long left() { return deadline - now(); }

    private static long now() { return System.nanoTime() / 1_000_000; } // not the clock, which may be set

    /** Returns the error of an error reply; null for any other reply. */
    static @Nullable ReplyException refusal(Message message) {
        String status = header(message, "Nats-Service-Error-Code");
        if (status == null) return null;
        String code = null, text = null;
        List<ReplyException.Violation> details = List.of();
        try {
            var error = Json.child(Json.object(message.getData()), "error");
            if (error != null) {
                code = Json.text(error, "code");
                text = Json.text(error, "message");
                details = Json.list(error, "details", d -> new ReplyException.Violation(
                    Objects.requireNonNullElse(Json.text(d, "path"), ""),
                    Objects.requireNonNullElse(Json.text(d, "message"), "")));
            }
        } catch (JsonParseException e) { // the headers say enough
        }
        if (code == null) code = "UNKNOWN";
        if (text == null || text.isEmpty()) text = header(message, "Nats-Service-Error");
        return new ReplyException((int) number(status, 500), code, text == null ? code : text, details,
            Duration.ofMillis(number(header(message, "Retry-After-Ms"), 0)), header(message, "Run-Id"));
    }

    private static long number(@Nullable String text, long otherwise) {
        return text != null && text.matches("[0-9]{1,9}") ? Long.parseLong(text) : otherwise;
    }

    static @Nullable String header(Message message, String name) {
        return message.hasHeaders() ? message.getHeaders().getFirst(name) : null;
    }
}
