package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
)

// Who is not known does not come in, and no secret comes into the log, whatever goes wrong.
func TestOnlyUsersConnect(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := pair.PublicKey()
	require.NoError(t, err)
	hashed := access.User{Name: "hashed", Role: access.Observer,
		PasswordHash: "$2a$11$3kIDaCxw.Glsl1.u5nKa6eUnNDLV5HV9tIuUp7EHhMt6Nm9myW1aS"}
	log := &natstest.Buffer{}
	srv := start(t, servertest.WithUsers(servertest.Person(access.Agent), hashed,
		access.User{Name: "k", Role: access.Plugin, NKey: public}),
		func(c *server.Config) {
			c.Logger = slog.New(slog.NewTextHandler(log,
				&slog.HandlerOptions{Level: slog.LevelDebug}))
		})
	try := func(options ...nats.Option) error {
		nc, err := nats.Connect(srv.URL(), append(options, nats.Timeout(20*time.Second))...)
		if err == nil {
			nc.Close()
		}
		return err
	}
	require.NoError(t, try(nats.UserInfo("agent", servertest.Password)))
	require.NoError(t, try(nats.Nkey(public, pair.Sign)))
	require.Error(t, try())
	for _, wrong := range []string{"sentinel-password", string(hashed.PasswordHash), ""} {
		for _, name := range []string{"agent", "hashed", "nobody", "handoffd-engine"} {
			err := try(nats.UserInfo(name, wrong))
			require.Error(t, err)
			require.NotContains(t, err.Error(), "sentinel")
		}
	}
	require.Error(t, try(nats.Token("sentinel-token")))
	c := as(t, srv.URL(), servertest.Person(access.Agent))
	require.False(t, c.mayPublish("world.main.log.t"))
	require.Eventually(t, func() bool { return len(log.String()) > 0 }, 20*time.Second,
		20*time.Millisecond)
	for _, secret := range []string{"sentinel", servertest.Password, string(hashed.PasswordHash)} {
		require.NotContains(t, log.String(), secret)
	}
}

// With TLS nobody connects without it, but the server itself; and with a client CA, nobody without
// a certificate of it.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	for _, ca := range []string{"", cert} {
		srv := start(t, func(c *server.Config) {
			c.Access = &access.Config{Users: everybody(),
				TLS: access.TLS{CertFile: cert, KeyFile: key, ClientCAFile: ca}}
		})
		login := []nats.Option{nats.UserInfo("operator", servertest.Password),
			nats.CustomInboxPrefix("_INBOX_operator")}
		try := func(more ...nats.Option) error {
			nc, err := nats.Connect(srv.URL(), append(login, more...)...)
			if err != nil {
				return err
			}
			defer nc.Close()
			_, err = nc.Request("worldengine.v1.main.town.list", nil, 20*time.Second)
			return err
		}
		require.Regexp(t, "^tls://", srv.URL())
		require.Error(t, try(), "the authority is not known")
		require.Equal(t, ca == "", try(nats.RootCAs(cert)) == nil)
		require.NoError(t, try(nats.RootCAs(cert), nats.ClientCert(cert, key)))
	}
}

// A reload uses a renewed certificate for new connections, of NATS and of HTTP; open ones stay, and
// files that are broken change nothing.
func TestTLS_Reload(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	config := &access.Config{Users: everybody(), TLS: access.TLS{CertFile: cert, KeyFile: key}}
	srv := start(t, withHTTP, func(c *server.Config) { c.Access = config })
	connect := func(ca string) (*nats.Conn, error) {
		return nats.Connect(srv.URL(), nats.UserInfo("operator", servertest.Password),
			nats.CustomInboxPrefix("_INBOX_operator"), nats.RootCAs(ca))
	}
	trusted := func(ca string) bool {
		pool, file := x509.NewCertPool(), contents(t, ca)
		require.True(t, pool.AppendCertsFromPEM(file))
		conn, err := tls.Dial("tcp", strings.TrimPrefix(srv.HTTP(), "https://"),
			&tls.Config{RootCAs: pool})
		if err == nil {
			conn.Close()
		}
		nc, natsErr := connect(ca)
		if natsErr == nil {
			nc.Close()
		}
		require.Equal(t, err == nil, natsErr == nil)
		return err == nil
	}
	old := filepath.Join(t.TempDir(), "old.pem")
	require.NoError(t, os.WriteFile(old, contents(t, cert), 0o600))
	stays, err := connect(cert)
	require.NoError(t, err)
	defer stays.Close()

	require.NoError(t, os.WriteFile(cert, nil, 0o600))
	_, err = srv.ReloadAccess(config)
	require.ErrorContains(t, err, "TLS")
	require.True(t, trusted(old))

	newCert, newKey := certificate(t)
	require.NoError(t, os.WriteFile(cert, contents(t, newCert), 0o600))
	require.NoError(t, os.WriteFile(key, contents(t, newKey), 0o600))
	done, err := srv.ReloadAccess(config)
	require.NoError(t, err)
	require.Zero(t, done)
	require.True(t, trusted(newCert))
	require.False(t, trusted(old))
	require.NoError(t, stays.FlushTimeout(20*time.Second))
	require.Zero(t, stays.Stats().Reconnects)

	done, err = srv.ReloadAccess(&access.Config{Users: everybody()})
	require.NoError(t, err)
	require.True(t, done.TLS)
	require.True(t, trusted(newCert))
}

// A certificate that is not valid yet, or no longer, is a warning: the server serves those who know it.
func TestTLS_InvalidNow(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*x509.Certificate){
		func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) },
		func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) },
	} {
		cert, key := certificate(t, change)
		log := &natstest.Buffer{}
		srv := start(t, func(c *server.Config) {
			c.Access = &access.Config{Users: everybody(),
				TLS: access.TLS{CertFile: cert, KeyFile: key}}
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		require.Contains(t, log.String(), "it is not valid now")
		login := nats.UserInfo("operator", servertest.Password)
		_, err := nats.Connect(srv.URL(), login, nats.RootCAs(cert))
		require.Error(t, err)
		nc, err := nats.Connect(srv.URL(), login,
			nats.Secure(&tls.Config{InsecureSkipVerify: true}))
		require.NoError(t, err)
		nc.Close()
	}
}

// A client that signs in during reloads that change nothing of its user is not refused.
func TestReloadAccess_WhileSigningIn(t *testing.T) {
	t.Parallel()
	users := everybody()
	srv := start(t, servertest.WithUsers(users...))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_, err := srv.ReloadAccess(&access.Config{Users: users[:len(users)-i%2]})
			assert.NoError(t, err)
		}
	}()
	for range 100 {
		nc, err := nats.Connect(srv.URL(), nats.UserInfo(users[0].Name, servertest.Password))
		require.NoError(t, err)
		nc.Close()
	}
	close(stop)
	<-stopped
}

func contents(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return data
}

// A server on the loopback address of IPv6 serves clients, its operator and browsers there.
func TestServer_IPv6(t *testing.T) {
	t.Parallel()
	if probe, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6: ", err)
	} else {
		probe.Close()
	}
	srv := start(t, func(c *server.Config) { c.Listen, c.HTTP = "[::1]:0", "[::1]:0" })
	require.Regexp(t, `^nats://\[::1\]:\d+$`, srv.URL())
	require.Regexp(t, `^http://\[::1\]:\d+$`, srv.HTTP())
	connect(t, srv).request("town.list", nil)
	streams, err := natsconn.Options{}.ConnectOperator(srv.URL(), "operator")
	require.NoError(t, err)
	streams.Close()
	page, err := browse(srv)
	require.NoError(t, err)
	page.Close()
}

// certificate makes a certificate of 127.0.0.1 that is its own authority.
func certificate(
	t *testing.T, change ...func(*x509.Certificate),
) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile:  {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	return certFile, keyFile
}

// Without access control only this machine is served, unless that is asked for.
func TestOnlyLoopbackWithoutAccess(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.org:0"} {
		_, err := server.Start(t.Context(), configure(func(c *server.Config) {
			c.Listen, c.Data = listen, t.TempDir()
		}))
		require.ErrorIs(t, err, server.ErrOpenListen, listen)
	}
	for _, listen := range []string{"127.0.0.1:0", "localhost:0", "127.1.2.3:0"} {
		start(t, func(c *server.Config) { c.Listen = listen })
	}
	for _, listen := range []string{"0.0.0.0:0", ":0"} {
		srv := start(t, func(c *server.Config) { c.Listen, c.InsecureListen = listen, true })
		require.Regexp(t, `^nats://127\.0\.0\.1:\d+$`, srv.URL())
		streams, err := natsconn.Options{}.ConnectOperator(srv.URL(), "operator")
		require.NoError(t, err)
		streams.Close()
	}
	beyond := func(c *server.Config) { c.Listen = "0.0.0.0:0" }
	_, err := server.Start(t.Context(), configure(servertest.WithUsers(everybody()...), beyond))
	require.ErrorIs(t, err, server.ErrPlainListen, "passwords need TLS")
	start(t, servertest.WithUsers(everybody()...), beyond,
		func(c *server.Config) { c.InsecureListen = true })
}
