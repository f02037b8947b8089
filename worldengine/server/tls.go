package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"worldengine/worldengine/access"
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
