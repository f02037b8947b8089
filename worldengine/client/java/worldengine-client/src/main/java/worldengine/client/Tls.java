package worldengine.client;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.jspecify.annotations.Nullable;

/** Makes contexts of TLS from PEM texts, which Java has no call for. */
final class Tls {
    private static final char[] NO_PASSWORD = {};

    private Tls() {}

    /** Returns a context that trusts these certificates, or Java's own, and shows the client's certificate. */
    static SSLContext context(@Nullable String trusted, @Nullable String certificate, @Nullable String key) {
        try {
            var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(trusted == null ? null : store(trusted));
            var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            var own = KeyStore.getInstance(KeyStore.getDefaultType());
            own.load(null, NO_PASSWORD);
            if (certificate != null) {
                if (key == null) throw new IllegalArgumentException("NATS_CERT needs NATS_KEY, its private key");
                own.setKeyEntry("client", privateKey(key), NO_PASSWORD, certificates(certificate));
            }
            keys.init(own, NO_PASSWORD);
            var context = SSLContext.getInstance("TLS");
            context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
            return context;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalArgumentException("the files of NATS_CA, NATS_CERT or NATS_KEY are not PEM with "
                + "certificates and a key of PKCS #8 (openssl pkcs8 -topk8 -nocrypt): " + e.getMessage(), e);
        }
    }

    private static KeyStore store(String pem) throws GeneralSecurityException, IOException {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, NO_PASSWORD);
        int i = 0;
        for (var certificate : certificates(pem)) store.setCertificateEntry("trusted" + i++, certificate);
        return store;
    }

    private static Certificate[] certificates(String pem) throws GeneralSecurityException {
        var in = new ByteArrayInputStream(pem.getBytes(StandardCharsets.US_ASCII));
        return CertificateFactory.getInstance("X.509").generateCertificates(in).toArray(Certificate[]::new);
    }

    private static PrivateKey privateKey(String pem) throws GeneralSecurityException {
        String base64 = pem.replaceAll("-----[^-]*-----", "").replaceAll("\\s", "");
        PKCS8EncodedKeySpec spec;
        try {
            spec = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(base64));
        } catch (IllegalArgumentException e) {
            throw new GeneralSecurityException("the key is no PEM", e);
        }
        GeneralSecurityException last = null;
        for (var algorithm : new String[] {"EC", "RSA", "Ed25519"}) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(spec);
            } catch (GeneralSecurityException e) {
                last = e;
            }
        }
        throw last;
    }
}
