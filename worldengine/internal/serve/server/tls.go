package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"worldengine/worldengine/internal/serve/access"
)

// liveTLS is the TLS configuration of a server. A reload of the access file replaces it for later
// handshakes. It is safe for concurrent use.
type liveTLS struct {
	current atomic.Pointer[tls.Config]
	logger  *slog.Logger
}

// loadTLS reads the TLS files of a server; nil if it has no TLS.
func loadTLS(users *access.Config, logger *slog.Logger) (*liveTLS, error) {
	if users == nil || users.TLS == (access.TLS{}) {
		return nil, nil
	}
	l := &liveTLS{logger: logger}
	return l, l.load(users.TLS)
}

// load reads TLS files. It changes nothing if one cannot be used.
func (l *liveTLS) load(files access.TLS) error {
	config, err := files.Config()
	if err != nil {
		return fmt.Errorf("server: TLS: %w", err)
	}
	l.current.Store(config)
	leaf, now := config.Certificates[0].Leaf, time.Now()
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		l.logger.Warn("clients refuse the certificate of this server: it is not valid now",
			"file", files.CertFile, "from", leaf.NotBefore, "until", leaf.NotAfter)
	}
	return nil
}

// config returns a configuration whose handshakes follow reloads.
func (l *liveTLS) config() *tls.Config {
	config := l.current.Load().Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return l.current.Load(), nil
	}
	return config
}

// httpConfig is config for HTTP: its handshakes succeed without the client's certificate, since probes
// of health have none. Everything else has to be certified.
func (l *liveTLS) httpConfig() *tls.Config {
	config := l.config()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := l.current.Load()
		if requiresClientCert(current) {
			current = current.Clone()
			current.ClientAuth = tls.VerifyClientCertIfGiven
		}
		return current, nil
	}
	return config
}

func requiresClientCert(config *tls.Config) bool {
	return config.ClientAuth == tls.RequireAndVerifyClientCert
}

// certified refuses requests without the client's certificate, if the access file requires it. l is
// nil without TLS.
func (l *liveTLS) certified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l != nil && requiresClientCert(l.current.Load()) && len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "The access file requires a client certificate (clientCAFile).",
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
