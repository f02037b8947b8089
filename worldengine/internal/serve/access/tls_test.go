package access

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
)

// With a file of authorities every client has to show a certificate; without TLS there is none.
func TestTLS_Config(t *testing.T) {
	t.Parallel()
	none, err := TLS{}.Config()
	require.NoError(t, err)
	require.Nil(t, none)
	cert, key := natstest.Certificate(t)
	config, err := TLS{CertFile: cert, KeyFile: key}.Config()
	require.NoError(t, err)
	require.Len(t, config.Certificates, 1)
	require.Equal(t, uint16(tls.VersionTLS12), config.MinVersion)
	require.Equal(t, tls.NoClientCert, config.ClientAuth)
	config, err = TLS{CertFile: cert, KeyFile: key, ClientCAFile: cert}.Config()
	require.NoError(t, err)
	require.Equal(t, tls.RequireAndVerifyClientCert, config.ClientAuth)
	require.NotNil(t, config.ClientCAs)
}

// A file that is missing, or is something else, is an error that names it, and no server that asks
// clients for less than it was to.
func TestTLS_BadFiles(t *testing.T) {
	t.Parallel()
	cert, key := natstest.Certificate(t)
	_, otherKey := natstest.Certificate(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for name, c := range map[string]struct {
		tls  TLS
		want string
	}{
		"no certificate":          {TLS{CertFile: missing, KeyFile: key}, missing},
		"no key":                  {TLS{CertFile: cert, KeyFile: missing}, missing},
		"only a certificate":      {TLS{CertFile: cert}, "open"},
		"the key of another":      {TLS{CertFile: cert, KeyFile: otherKey}, "does not match"},
		"a key for a certificate": {TLS{CertFile: key, KeyFile: key}, "certificate"},
		"no authorities": {TLS{CertFile: cert, KeyFile: key, ClientCAFile: missing},
			missing},
		"a key for authorities": {TLS{CertFile: cert, KeyFile: key, ClientCAFile: key},
			key + " has no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := c.tls.Config()
			require.ErrorContains(t, err, c.want)
			require.Nil(t, config)
		})
	}
}
