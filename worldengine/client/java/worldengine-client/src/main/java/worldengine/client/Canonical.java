package worldengine.client;

import com.google.gson.JsonElement;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.erdtman.jcs.JsonCanonicalizer;
import org.jspecify.annotations.Nullable;

/** Canonical JSON (RFC 8785), and the hashes and names that are made of it. */
public final class Canonical {
    private static final int LONGEST_TOKEN = 128;

    private Canonical() {}

    /** Returns the canonical JSON of a value: no white space, members sorted by their UTF-16 code units. */
    public static String json(JsonElement value) {
        try {
            // The library reads objects and arrays alone.
            String list = new JsonCanonicalizer("[" + value + "]").getEncodedString();
            return list.substring(1, list.length() - 1);
        } catch (IOException e) {
            throw new IllegalArgumentException("the value has no canonical JSON: " + e.getMessage(), e);
        }
    }

    /** Returns the contract's hash of a value: the SHA-256 of its canonical JSON. */
    public static String hash(JsonElement value) {
        return sha256(json(value));
    }

    /** Returns the lower-case hex SHA-256 of a text in UTF-8. */
    public static String sha256(String text) {
        try {
            var digest = MessageDigest.getInstance("SHA-256");
            return HexFormat.of().formatHex(digest.digest(text.getBytes(StandardCharsets.UTF_8)));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every Java has SHA-256", e);
        }
    }

    /**
     * Returns the token of a town in a subject: the UTF-8 of its id, with every byte except A-Z a-z 0-9 _ -
     * percent-encoded. Instead of more than 128 characters it is {@code =} and the SHA-256 of the id.
     */
    public static String townToken(String townId) {
        var token = new StringBuilder();
        for (byte b : townId.getBytes(StandardCharsets.UTF_8)) {
            char c = (char) (b & 0xFF);
            boolean plain = c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
                || c == '_' || c == '-';
            if (plain) token.append(c);
            else token.append('%').append(HexFormat.of().withUpperCase().toHexDigits(b));
        }
        return token.length() <= LONGEST_TOKEN ? token.toString() : "=" + sha256(townId);
    }

    /** Returns the idempotencyKey of a run event; an event of the run, not of a step, has no stepId. */
    public static String idempotencyKey(String runId, @Nullable String stepId, long logicalAttemptId,
            String eventType, String planId, String planVersion) {
        return sha256(String.join("|", runId, stepId == null ? "RUN" : stepId, Long.toString(logicalAttemptId),
            eventType, planId, planVersion));
    }
}
