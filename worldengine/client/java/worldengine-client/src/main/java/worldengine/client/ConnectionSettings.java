package worldengine.client;

import io.nats.client.Nats;
import io.nats.client.Options;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How to connect to NATS. The {@code with} methods return changed copies; {@link #fromEnvironment} reads the
 * variables of the NATS command line. The connection reconnects without end, and notices within 15 seconds
 * that a server has vanished.
 */
public final class ConnectionSettings {
    private static final Duration PING = Duration.ofSeconds(5);

    private final Map<String, String> values; // by the names of the variables

    private ConnectionSettings(Map<String, String> values) {
        this.values = values;
    }

    /** Returns settings for servers, such as {@code nats://127.0.0.1:4222}; several are divided by commas. */
    public static ConnectionSettings of(String servers) {
        return new ConnectionSettings(Map.of("NATS_URL", servers));
    }

    /**
     * Returns the settings in the environment variables NATS_URL, NATS_USER, NATS_PASSWORD, NATS_TOKEN,
     * NATS_CREDS, NATS_NKEY, NATS_CA, NATS_CERT, NATS_KEY and NATS_INBOX_PREFIX. Without NATS_URL the
     * server is {@code nats://127.0.0.1:4222}.
     */
    public static ConnectionSettings fromEnvironment() {
        return fromEnvironment(System.getenv());
    }

    static ConnectionSettings fromEnvironment(Map<String, String> environment) {
        var values = new java.util.HashMap<String, String>();
        environment.forEach((name, value) -> {
            if (name.startsWith("NATS_") && !value.isEmpty()) values.put(name, value);
        });
        return new ConnectionSettings(Map.copyOf(values));
    }

    /** Returns them for other servers. */
    public ConnectionSettings withServers(String servers) { return with("NATS_URL", servers); }

    /** Returns them with a user and a password. */
    public ConnectionSettings withUser(String user, String password) {
        return with("NATS_USER", user).with("NATS_PASSWORD", password);
    }

    /** Returns them with a token. */
    public ConnectionSettings withToken(String token) { return with("NATS_TOKEN", token); }

    /** Returns them with a file of credentials (a JWT and a key). */
    public ConnectionSettings withCredentials(Path file) { return with("NATS_CREDS", file.toString()); }

    /** Returns them with a file that has the seed of an NKey. */
    public ConnectionSettings withNKey(Path file) { return with("NATS_NKEY", file.toString()); }

    /** Returns them with a file of trusted certificates (PEM), for TLS. */
    public ConnectionSettings withTrusted(Path file) { return with("NATS_CA", file.toString()); }

    /** Returns them with a certificate of the client and its key (PEM, PKCS #8), for TLS. */
    public ConnectionSettings withCertificate(Path certificate, Path key) {
        return with("NATS_CERT", certificate.toString()).with("NATS_KEY", key.toString());
    }

    /** Returns them with another prefix of reply subjects than the user's own, {@code _INBOX_<user>}. */
    public ConnectionSettings withInboxPrefix(String prefix) { return with("NATS_INBOX_PREFIX", prefix); }

    private ConnectionSettings with(String name, String value) {
        var changed = new java.util.HashMap<>(values);
        changed.put(name, value);
        return new ConnectionSettings(Map.copyOf(changed));
    }

    /** Returns the servers for people, without the secrets of a URL. */
    @Override
    public String toString() { return withoutSecrets(String.join(", ", servers())); }

    static String withoutSecrets(String text) { return text.replaceAll("[^/\\s\\[]*@", ""); }

    private List<String> servers() {
        return java.util.Arrays.stream(values.getOrDefault("NATS_URL", "nats://127.0.0.1:4222").split(","))
            .map(String::strip).filter(url -> !url.isEmpty()).toList();
    }

    /**
     * Returns the options for jnats, to which a caller adds its listeners. It throws an
     * {@link IllegalArgumentException} if a file or a URL cannot be read.
     */
    public Options.Builder options(String name) {
        var options = servers(new Options.Builder()).connectionName(name).maxReconnects(-1).pingInterval(PING).reportNoResponders();
        String user = get("NATS_USER"), password = get("NATS_PASSWORD"), token = get("NATS_TOKEN");
        if (token == null && password == null) token = user;
        if (token != null) options.token(token.toCharArray());
        else if (user != null && password != null) options.userInfo(user.toCharArray(), password.toCharArray());
        String inbox = get("NATS_INBOX_PREFIX");
        if (inbox == null && user != null && password != null) inbox = "_INBOX_" + user;
        if (inbox == null) inbox = inboxOfUrl();
        if (inbox != null) options.inboxPrefix(inbox);
        if (get("NATS_CREDS") != null) read("NATS_CREDS"); // jnats reads it with each connection
        if (get("NATS_CREDS") != null) options.authHandler(Nats.credentials(get("NATS_CREDS")));
        if (get("NATS_NKEY") != null) {
            options.authHandler(Nats.staticCredentials(null, read("NATS_NKEY").strip().toCharArray()));
        }
        if (get("NATS_CA") != null || get("NATS_CERT") != null) {
            options.sslContext(Tls.context(get("NATS_CA") == null ? null : read("NATS_CA"),
                get("NATS_CERT") == null ? null : read("NATS_CERT"),
                get("NATS_KEY") == null ? null : read("NATS_KEY")));
        }
        return options;
    }

    private Options.Builder servers(Options.Builder options) {
        if (servers().isEmpty()) throw new IllegalArgumentException("the servers (NATS_URL) are empty: nats://host:4222");
        try {
            return options.servers(servers().toArray(String[]::new));
        } catch (IllegalArgumentException e) { // not a cause, since its message has the secrets of the URL
            throw new IllegalArgumentException("a URL of the servers (NATS_URL) cannot be read: write nats://host:4222, "
                + "and the password into NATS_PASSWORD, or its signs such as # / ? % as %23 %2F %3F %25");
        }
    }

    /** Returns the prefix of the user in a URL such as nats://ada:secret@host; null if there is none. */
    private @Nullable String inboxOfUrl() {
        var user = java.util.regex.Pattern.compile("//([^/:@]+):[^/@]+@").matcher(servers().get(0));
        return user.find() ? "_INBOX_" + user.group(1) : null;
    }

    private @Nullable String get(String name) { return values.get(name); }

    private String read(String name) {
        String file = Objects.requireNonNull(get(name));
        try {
            return Files.readString(Path.of(file));
        } catch (IOException | java.nio.file.InvalidPathException e) {
            throw new IllegalArgumentException(name + " names a file that cannot be read: " + file, e);
        }
    }
}
