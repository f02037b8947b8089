package natsconn

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
)

// Each kind of credentials connects to a server that requires it, and empty options do not.
func TestMain(m *testing.M) { natstest.Main(m, 8) }

func TestOptions_Connect(t *testing.T) {
	t.Parallel()
	public, seed := natstest.UserKey(t)
	nkey := filepath.Join(t.TempDir(), "user.nk")
	require.NoError(t, os.WriteFile(nkey, seed, 0o600))
	certFile, keyFile := natstest.Certificate(t)
	ca, err := os.ReadFile(certFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	encrypted := func(first bool) *natsserver.Options {
		return &natsserver.Options{
			TLSVerify: true, TLSHandshakeFirst: first, TLSConfig: &tls.Config{
				Certificates: []tls.Certificate{pair}, ClientCAs: pool,
				ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
			},
		}
	}
	for name, c := range map[string]struct {
		server *natsserver.Options
		client Options
	}{
		"password": {&natsserver.Options{Username: "mara", Password: "secret"},
			Options{User: "mara", Password: "secret"}},
		"token":           {&natsserver.Options{Authorization: "s3cr3t"}, Options{Token: "s3cr3t"}},
		"a token as user": {&natsserver.Options{Authorization: "s3cr3t"}, Options{User: "s3cr3t"}},
		"nkey": {&natsserver.Options{Nkeys: []*natsserver.NkeyUser{{Nkey: public}}},
			Options{NKey: nkey}},
		"TLS": {encrypted(false), Options{TLSCA: certFile, TLSCert: certFile, TLSKey: keyFile}},
		"TLS first": {encrypted(true),
			Options{TLSCA: certFile, TLSCert: certFile, TLSKey: keyFile, TLSFirst: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := startNATS(t, c.server)
			require.NoError(t, c.client.Check())
			nc, err := c.client.Connect(url, "test")
			require.NoError(t, err)
			require.NoError(t, nc.Flush())
			nc.Close()
			_, err = Options{}.Connect(url, "test")
			require.Error(t, err)
			if c.server.Username != "" {
				_, err = Options{User: "mara", Password: "wrong"}.Connect(url, "test")
				require.Error(t, err)
				require.NotContains(t, err.Error(), "wrong")
			}
		})
	}
	_, err = Options{TLSCert: certFile}.Connect("nats://127.0.0.1:1", "test")
	require.ErrorContains(t, err, "--tlskey")
}

// A connection that was late to sign in is tried again.
func TestOptions_ConnectLate(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for _, answer := range []string{"-ERR 'Authentication Timeout'", "PING", "PONG"} {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, `INFO {"server_id":"late","max_payload":1024}`+"\r\n")
			for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "PING"; {
			}
			_, _ = io.WriteString(conn, answer+"\r\n")
		}
	}()
	nc, err := Options{}.Connect("nats://"+listener.Addr().String(), "test")
	require.NoError(t, err)
	nc.Close()
}

// A flush outlasts the loss of the connection, and not its end.
func TestFlush(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, &natsserver.Options{})
	link := natstest.NewProxy(t, ns.Addr().String())
	nc := natstest.Dial(t, "nats://"+link.Address(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	link.Cut(true)
	flushed := make(chan error, 1)
	go func() { flushed <- Flush(ctx, nc) }()
	require.Eventually(t, func() bool {
		buffered, err := nc.Buffered()
		return err == nil && buffered == 0
	}, time.Minute, 10*time.Millisecond)
	link.Drop()
	link.Cut(false)
	require.NoError(t, <-flushed)
	nc.Close()
	require.ErrorIs(t, Flush(ctx, nc), nats.ErrConnectionClosed)
}

// startNATS starts a server with options.
func startNATS(t *testing.T, options *natsserver.Options) string {
	t.Helper()
	options.NoLog = true
	return natstest.Start(t, options).ClientURL()
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"nats://user:pass@host:1":     "nats://host:1",
		"token@host:1,nats://b:2":     "nats://host:1,nats://b:2",
		"tls://u:p@a:1, nats://x@y@b": "tls://a:1,nats://b",
	} {
		require.Equal(t, want, RedactURLs(url))
	}
}

func TestInboxOfAUser(t *testing.T) {
	t.Parallel()
	const host = "nats://127.0.0.1:4222"
	for want, options := range map[string]Options{
		"_INBOX_mara": {User: "mara", Password: "secret"},
		"_MINE":       {User: "mara", Password: "secret", Inbox: "_MINE"},
		"":            {User: "a token"},
	} {
		require.Equal(t, want, options.WithUserInbox(host).Inbox)
	}
	require.Equal(t, "_INBOX_mara",
		Options{}.WithUserInbox("mara:p%20w@127.0.0.1:1,nats://b:2").Inbox)
	require.Empty(t, Options{}.WithUserInbox("nats://token@127.0.0.1:1").Inbox)
	require.Empty(t, Options{User: "a.b", Password: "p"}.WithUserInbox(host).Inbox)
	require.Empty(t, Options{User: "mara", Password: "p", NKey: "file"}.WithUserInbox(host).Inbox)
	_, err := Options{}.Connect("nats://mara:se cret@127.0.0.1:1", "test")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "cret")
}

func TestLoadEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"NATS_URL": "nats://game", "NATS_USER": "ada", "NATS_PASSWORD": "p",
		"NATS_TOKEN": "t", "NATS_CREDS": "c",
		"NATS_NKEY": "n", "NATS_CERT": "cert", "NATS_KEY": "key",
		"NATS_CA": "ca", "NATS_INBOX_PREFIX": "_INBOX_x",
	}
	urls, o := LoadEnvironment(func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
	require.Equal(t, "nats://game", urls)
	require.Equal(t, Options{
		User: "ada", Password: "p", Token: "t", Creds: "c", NKey: "n", TLSCert: "cert",
		TLSKey: "key", TLSCA: "ca",
		Inbox: "_INBOX_x",
	}, o)
	urls, o = LoadEnvironment(func(string) (string, bool) { return "", false })
	require.Empty(t, urls)
	require.Equal(t, Options{}, o)
}
