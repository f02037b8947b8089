// Package tlsfiles has the TLS configuration of a server, whose files a reload reads again.
package tlsfiles

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"worldengine/worldengine/internal/serve/access"
)

// Live is the TLS configuration of a server. A reload of the access file replaces it for later
// handshakes. It is safe for concurrent use.
type Live struct {
	current atomic.Pointer[tls.Config]
	logger  *slog.Logger
}

// Load reads the TLS files of a server; nil if it has no TLS.
func Load(users *access.Config, logger *slog.Logger) (*Live, error) {
	if users == nil || users.TLS == (access.TLS{}) {
		return nil, nil
	}
	l := &Live{logger: logger}
	return l, l.Reload(users.TLS)
}

// Reload reads TLS files for later handshakes. It changes nothing if one cannot be used.
func (l *Live) Reload(files access.TLS) error {
	config, err := files.Config()
	if err != nil {
		return fmt.Errorf("tlsfiles: TLS: %w", err)
	}
	l.current.Store(config)
	leaf, now := config.Certificates[0].Leaf, time.Now()
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		l.logger.Warn("clients refuse the certificate of this server: it is not valid now",
			"file", files.CertFile, "from", leaf.NotBefore, "until", leaf.NotAfter)
	}
	return nil
}

// Config returns a configuration whose handshakes follow reloads.
func (l *Live) Config() *tls.Config {
	config := l.current.Load().Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return l.current.Load(), nil
	}
	return config
}

// HTTPConfig is Config for HTTP: its handshakes succeed without the client's certificate, since probes
// of health have none. Everything else has to be certified.
func (l *Live) HTTPConfig() *tls.Config {
	config := l.Config()
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

// Certified refuses requests without the client's certificate, if the access file requires it. l is
// nil without TLS.
func (l *Live) Certified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l != nil && requiresClientCert(l.current.Load()) && len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "The access file requires a client certificate (clientCAFile).",
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
