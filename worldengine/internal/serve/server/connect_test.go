package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Only users sign in, and no secret comes into the log, whatever goes wrong.
func TestConnect_OnlyUsers(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := pair.PublicKey()
	require.NoError(t, err)
	hashed := access.User{Name: "hashed", Role: wire.Observer,
		PasswordHash: "$2a$11$3kIDaCxw.Glsl1.u5nKa6eUnNDLV5HV9tIuUp7EHhMt6Nm9myW1aS"}
	log := &natstest.Buffer{}
	w := newWorld(t, servertest.WithUsers(servertest.Person(wire.Agent), hashed,
		access.User{Name: "k", Role: wire.Plugin, NKey: public}),
		func(c *server.Config) {
			c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
	connected(t, w.Server.URL(), nats.UserInfo("agent", servertest.Password))
	connected(t, w.Server.URL(), nats.Nkey(public, pair.Sign))
	wrong := []nats.Option{nats.Name("nobody"), nats.Token("sentinel-token")}
	for _, password := range []string{"sentinel-password", string(hashed.PasswordHash), ""} {
		for _, name := range []string{"agent", "hashed", "nobody", "handoffd-engine"} {
			wrong = append(wrong, nats.UserInfo(name, password))
		}
	}
	for _, option := range wrong {
		_, err := dial(w.Server.URL(), option)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "sentinel")
	}
	require.False(t, w.mayPublish("world.main.log.t"))
	eventually(t, func() bool { return log.String() != "" })
	for _, secret := range []string{"sentinel", servertest.Password, string(hashed.PasswordHash)} {
		require.NotContains(t, log.String(), secret)
	}
}

// withTLS gives a server everybody as users, and TLS.
func withTLS(cert, key, clientCA string) func(*server.Config) {
	return func(c *server.Config) {
		c.Access = &access.Config{Users: everybody(),
			TLS: access.TLS{CertFile: cert, KeyFile: key, ClientCAFile: clientCA}}
	}
}

// login are the options of the operator.
func login(more ...nats.Option) []nats.Option {
	return append([]nats.Option{nats.UserInfo("operator", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_operator")}, more...)
}

// With TLS nobody connects without it, but the server itself; and with a client CA, nobody without
// a certificate of it, also as a browser or behind the bridge. Probes of health have none.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := natstest.Certificate(t)
	for _, ca := range []string{"", cert} {
		srv := start(t, withHTTP, withTLS(cert, key, ca))
		require.Regexp(t, "^tls://", srv.URL())
		require.Regexp(t, "^https://", srv.HTTP())
		for name, connect := range map[string]func(...nats.Option) (*nats.Conn, error){
			"client":  func(o ...nats.Option) (*nats.Conn, error) { return dial(srv.URL(), o...) },
			"browser": func(o ...nats.Option) (*nats.Conn, error) { return browse(srv, o...) },
		} {
			try := func(more ...nats.Option) error {
				nc, err := connect(login(more...)...)
				if err != nil {
					return err
				}
				defer nc.Close()
				_, err = nc.Request("worldengine.v1.main.town.list", nil, time.Minute)
				return err
			}
			require.Error(t, try(), "%s: the authority is not known", name)
			require.Equal(t, ca == "", try(nats.RootCAs(cert)) == nil, name)
			require.NoError(t, try(nats.RootCAs(cert), nats.ClientCert(cert, key)), name)
		}
		_, err := dial(srv.BehindBridge(), login()...)
		require.ErrorIs(t, err, nats.ErrAuthorization)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(contents(t, cert)))
		without := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
		for path, health := range map[string]bool{"/livez": true, "/readyz": true, "/metrics": false,
			"/": false, "/config.json": false} {
			answer, err := without.Get(srv.HTTP() + path)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			want := http.StatusOK
			if ca != "" && !health {
				want = http.StatusForbidden
			}
			require.Equal(t, want, answer.StatusCode, path)
		}
	}
}

// A reload uses a renewed certificate for new connections, of NATS and of HTTP; open ones stay, and
// files that are broken change nothing. A certificate that is not valid now is a warning.
func TestTLS_Reload(t *testing.T) {
	t.Parallel()
	cert, key := natstest.Certificate(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
	log := &natstest.Buffer{}
	srv := start(t, withHTTP, withTLS(cert, key, ""), logged(log))
	require.Contains(t, log.String(), "it is not valid now")
	config := srv.Access()
	trusted := func(ca string) bool {
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(contents(t, ca)))
		conn, err := tls.Dial("tcp", strings.TrimPrefix(srv.HTTP(), "https://"), &tls.Config{RootCAs: pool})
		if err == nil {
			conn.Close()
		}
		nc, natsErr := dial(srv.URL(), login(nats.RootCAs(ca))...)
		if natsErr == nil {
			nc.Close()
		}
		require.Equal(t, err == nil, natsErr == nil)
		return err == nil
	}
	write := func(to string, data []byte) { require.NoError(t, os.WriteFile(to, data, 0o600)) }
	renew := func() (newCert string) {
		newCert, newKey := natstest.Certificate(t)
		write(cert, contents(t, newCert))
		write(key, contents(t, newKey))
		done, err := srv.ReloadAccess(config)
		require.NoError(t, err)
		require.Zero(t, done)
		require.True(t, trusted(newCert))
		return newCert
	}
	require.False(t, trusted(cert))
	old := renew()
	stays := connected(t, srv.URL(), login(nats.RootCAs(old))...)
	write(cert, nil)
	_, err := srv.ReloadAccess(config)
	require.ErrorContains(t, err, "TLS")
	require.True(t, trusted(old))
	now := renew()
	require.False(t, trusted(old))
	require.NoError(t, stays.FlushTimeout(time.Minute))
	require.Zero(t, stays.Stats().Reconnects)

	done, err := srv.ReloadAccess(&access.Config{Users: everybody()})
	require.NoError(t, err)
	require.True(t, done.TLS)
	require.True(t, trusted(now))
}

// A client that signs in during reloads that change nothing of its user is not refused.
func TestReloadAccess_WhileSigningIn(t *testing.T) {
	t.Parallel()
	users := everybody()
	srv := start(t, servertest.WithUsers(users...))
	stopped, stop := context.WithCancel(t.Context())
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for i := 0; stopped.Err() == nil; i++ {
			_, err := srv.ReloadAccess(&access.Config{Users: users[:len(users)-i%2]})
			assert.NoError(t, err)
		}
	})
	for range 15 {
		nc, err := dial(srv.URL(), nats.UserInfo(users[0].Name, servertest.Password))
		require.NoError(t, err)
		nc.Close()
	}
	stop()
	reloads.Wait()
}

func contents(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return data
}

// Without access control only this machine is served, also over IPv6, unless an operator says
// otherwise; passwords, also those that go over HTTP, need TLS beyond it.
func TestListen_OnlyLoopback(t *testing.T) {
	t.Parallel()
	cert, key := natstest.Certificate(t)
	users, encrypted := servertest.WithUsers(everybody()...), withTLS(cert, key, "")
	insecure := func(c *server.Config) { c.InsecureListen = true }
	const here, beyond = "127.0.0.1:0", "0.0.0.0:0"
	const anybody, readers = "every client that reaches the server may do everything", "every machine on the way to the "
	type change = func(*server.Config)
	for _, row := range []struct {
		listen, http string
		change       []change
		want         string // "" if it may be listened with
	}{
		{beyond, "", nil, anybody}, {":0", "", nil, anybody}, {"[::]:0", "", nil, anybody},
		{"192.0.2.1:0", "", nil, anybody}, {"example.org:0", "", nil, anybody}, {here, beyond, nil, anybody},
		{beyond, "", []change{users}, readers + "server"}, {here, beyond, []change{users}, readers + "console"},
		{here, "nowhere", nil, "--http must be HOST:PORT"}, {here, "127.0.0.1:x", nil, "--http has the port"},
		{here, here, []change{users}, ""}, {beyond, beyond, []change{encrypted}, ""},
		{beyond, beyond, []change{users, insecure}, ""}, {"localhost:0", "", nil, ""},
		{"127.1.2.3:0", "", nil, ""}, {":0", beyond, []change{insecure}, ""},
	} {
		config := configure(append(row.change, func(c *server.Config) {
			c.Embedded.Listen, c.HTTP.Listen, c.Embedded.Data = row.listen, row.http, t.TempDir()
		})...)
		_, err := server.Check(config)
		if row.want == "" {
			require.NoError(t, err, "%s %s", row.listen, row.http)
			continue
		}
		require.ErrorContains(t, err, row.want, "%s %s", row.listen, row.http)
		_, err = server.Start(t.Context(), config)
		require.ErrorContains(t, err, row.want, "%s %s", row.listen, row.http)
	}
	hosts := map[string]string{`127\.0\.0\.1`: beyond}
	if probe, err := net.Listen("tcp", "[::1]:0"); err == nil {
		probe.Close()
		hosts[`\[::1\]`] = "[::1]:0"
	}
	for host, address := range hosts {
		srv := start(t, insecure, func(c *server.Config) { c.Embedded.Listen, c.HTTP.Listen = address, address })
		require.Regexp(t, `^nats://`+host+`:\d+$`, srv.URL())
		require.Regexp(t, `^http://`+host+`:\d+$`, srv.HTTP())
		c := connect(t, srv)
		c.request("town.list", nil)
		c.log()
		page, err := browse(srv)
		require.NoError(t, err)
		page.Close()
	}
}

// Clients are listed with user, role and the towns of a plugin, and after they have left.
func TestWorldClients(t *testing.T) {
	t.Parallel()
	c := newWorld(t, servertest.WithUsers(servertest.Person(wire.Operator), servertest.Person(wire.Plugin)))
	plugin := connectUser(t, c.Server.URL(), servertest.Person(wire.Plugin), nats.Name("game")).nc
	for _, town := range []string{"t", "a b"} {
		_, err := plugin.SubscribeSync(wire.ApplySubject("main", wire.TownToken(town)))
		require.NoError(t, err)
	}
	require.NoError(t, plugin.Flush())
	clients := func() map[string]messages.Client {
		byUser := map[string]messages.Client{}
		for _, client := range call[messages.Clients](c.client, "world.clients", members{}).Clients {
			byUser[client.User] = client
		}
		return byUser
	}
	all := clients()
	require.Len(t, all, 2)
	require.Equal(t, "operator", all["operator"].Role)
	game := all["plugin"]
	require.NotContains(t, []string{game.LastSeen, game.Since}, "")
	require.Equal(t, messages.Client{User: "plugin", Role: "plugin", Name: "game", Connections: 1,
		Since: game.Since, LastSeen: game.LastSeen, Towns: []string{"a b", "t"}}, game)
	plugin.Close()
	eventually(t, func() bool { // NATS may list it as neither for a moment
		game, listed := clients()["plugin"]
		return listed && game.Connections == 0
	})
}

// dialFrom returns the option of a client that connects from a loopback address.
func dialFrom(address string) nats.Option {
	return nats.Dialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)},
		Timeout: 5 * time.Second})
}

// An address has no more connections than it is given, others have theirs, the server's own are not
// counted, and one that has ended makes room. The log has why a connection was refused.
func TestConnections_OfAnAddress(t *testing.T) {
	t.Parallel()
	const most = 3
	log := &natstest.Buffer{}
	srv := start(t, logged(log), func(c *server.Config) { c.Embedded.MaxConnectionsPerAddress = most })
	var open []*nats.Conn
	for range most {
		open = append(open, connected(t, srv.URL(), dialFrom("127.0.0.2"), nats.NoReconnect()))
	}
	for range 20 {
		_, err := dial(srv.URL(), dialFrom("127.0.0.2"))
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}
	require.Contains(t, log.String(), "--max-connections-per-address")
	(&client{t: t, nc: connected(t, srv.URL(), dialFrom("127.0.0.3")), world: "main"}).putTown("t")
	open[0].Close()
	eventually(t, func() bool {
		nc, err := dial(srv.URL(), dialFrom("127.0.0.2"))
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

var connectionCount = flag.Int("connections", 24, "how many connections bad clients make at a time")

// NATS takes no more connections than it is told, all of them from loopback by default, and takes one
// again when another has gone. Clients that come and go leave nothing behind that counts.
func TestConnections_Most(t *testing.T) {
	t.Parallel()
	c := newWorld(t, func(config *server.Config) { config.Embedded.MaxConnections = 16 })
	c.putTown("t")
	var open []net.Conn
	for range *connectionCount / 4 {
		for knock(c, &open) {
			require.LessOrEqual(t, len(open), 16, "no connection is refused")
		}
		require.NotEmpty(t, open)
		c.town("t")
		require.NoError(t, open[0].Close())
		eventually(t, func() bool { return knock(c, &open) })
		for _, conn := range open {
			conn.Close()
		}
		open = nil
		eventually(t, func() bool { return knock(c, &open) })
	}
}

// knock connects, and reports whether that was accepted.
func knock(w *world, open *[]net.Conn) bool {
	conn := w.raw()
	conn.write("CONNECT {}\r\nPING\r\n")
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "PONG"):
			*open = append(*open, conn)
			return true
		case strings.HasPrefix(line, "-ERR"):
			assert.Contains(w.t, line, "maximum account active connections exceeded")
			return false
		}
	}
	return false
}

// raw connects without being a NATS client, and reads the first words of the server.
func (w *world) raw() *rawClient {
	w.t.Helper()
	c := rawTo(w.t, w.Server.URL())
	require.NoError(w.t, c.SetDeadline(time.Now().Add(60*time.Second)))
	_, err := c.in.ReadString(' ')
	require.NoError(w.t, err)
	return c
}

// requireClosed reads until the server closes a connection, or resets it.
func requireClosed(t testing.TB, conn *rawClient) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn.in)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server keeps it")
}

// remainder is the goroutines, and the heap, of a process.
type remainder struct {
	goroutines int
	heap       uint64
}

func restOf() remainder {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return remainder{runtime.NumGoroutine(), m.HeapAlloc}
}

// require waits until the process has no more goroutines than before, and little more memory.
func (r remainder) require(t testing.TB) {
	t.Helper()
	var now remainder
	over := func() bool {
		now = restOf()
		return now.goroutines > r.goroutines+2 || now.heap >= r.heap+32<<20
	}
	for until := time.Now().Add(time.Minute); over(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Fatalf("it was %v, and is %v: %s", r, now, &stacks)
		}
	}
}

// Clients that stop in the middle of a message are closed by the server after some pings; clients that
// leave before they are answered, or speak no NATS, end their own connection. Others are served all
// along, and nothing of them is left.
func TestClients_HalfOpen(t *testing.T) { // alone: it counts goroutines
	// our own client is asked too, and may be kept waiting
	c := newWorld(t, func(c *server.Config) { c.Embedded.PingInterval = 300 * time.Millisecond })
	at := c.putTown("t")
	before := restOf()
	const get = "PUB worldengine.v1.main.town.get _INBOX.in 14\r\n{\"townId\":\"t\"}\r\n"
	said := []string{
		"", // no CONNECT at all
		"CONNECT {\"verbose\":false}\r\n", "CONNECT {\"verb", "PUB worldengine.v1.main.tow",
		"PUB worldengine.v1.main.town.get _INBOX.in 16777216\r\n{\"townId\":",
		"CONNECT {}\r\nPUB worldengine.v1.main.handoff _INBOX.in 200000\r\n" + strings.Repeat("x", 150_000),
		"CONNECT {\"headers\":true}\r\nHPUB worldengine.v1.main.town.get _INBOX.in 12 " +
			"16777216\r\nNATS/1.0\r\n",
		"CONNECT {}\r\nSUB _INBOX.in 1\r\n" + get + "PUB a",
	}
	var open []*rawClient
	for i := range *connectionCount {
		open = append(open, c.raw())
		open[i].write("%s", said[i%len(said)])
	}
	stale := c.wall(townReply{TownID: "t", SnapshotHash: strings.Repeat("0", 64)})
	for range 20 * *connectionCount { // they leave
		conn := c.raw()
		conn.write("CONNECT {}\r\nSUB _INBOX.in 1\r\n%sPUB worldengine.v1.main.handoff "+
			"_INBOX.in %d\r\n%s\r\nPUB worldengine.v1.main.run.li", get, len(stale), stale)
		require.NoError(t, conn.Close())
	}
	for _, said := range []string{ // no NATS
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"PUB\r\n", "PUB a -1\r\n", "PUB a 99999999999999999999\r\n", "CONNECT {\r\n",
		"SUB " + strings.Repeat("a", 5000) + " 1\r\n",
		"PUB worldengine.v1.main.town.get _INBOX.in 3\r\nabcdef\r\n", "\x00\x00\x00\x00",
		fmt.Sprintf("PUB worldengine.v1.main.handoff _INBOX.in %d\r\n", 16<<20+1),
	} {
		conn := c.raw()
		conn.write("%s", said)
		requireClosed(t, conn)
		require.Equal(t, at, c.town("t"))
	}
	for _, conn := range open {
		requireClosed(t, conn)
	}
	require.Equal(t, at, c.town("t"))
	before.require(t)
}

// A client that asks for much and never reads is closed when a message to it has lain too long.
// Others are served, and the messages that waited are released.
func TestClients_NeverRead(t *testing.T) { // alone: it counts goroutines
	c := newWorld(t, func(c *server.Config) { c.Embedded.WriteDeadline = 300 * time.Millisecond })
	big := snapshot("big")
	big.SideQuests[0].Title = strings.Repeat("t", 400_000)
	c.put(big, "")
	before := restOf()
	conn := c.raw()
	conn.write("CONNECT {\"verbose\":false}\r\nSUB _INBOX.in 1\r\n")
	most := uint64(0)
	for sent := 0; ; sent++ {
		require.Less(t, sent, 20_000, "it is still there")
		if _, err := io.WriteString(conn, "PUB worldengine.v1.main.town.get _INBOX.in "+
			"16\r\n{\"townId\":\"big\"}\r\n"); err != nil {
			break
		}
		if sent%40 == 0 {
			c.town("big") // as fast as others are served
			most = max(most, restOf().heap)
		}
	}
	require.Less(t, most, before.heap+256<<20)
	before.require(t)
}

// NATS keeps no more than maxPending for a client that never reads, however much it is sent and
// however long it may leave that lying.
func TestClients_MostPending(t *testing.T) { // alone: NATS keeps 128 MiB for it
	const bound, size, messages = 128 << 20, 1 << 20, 140
	c := newWorld(t, func(c *server.Config) { c.Embedded.WriteDeadline = time.Minute })
	conn := c.raw()
	conn.write("CONNECT {\"verbose\":false}\r\nSUB _INBOX.in 1\r\nPING\r\n")
	payload := make([]byte, size)
	pending := func() int {
		require.NoError(t, c.nc.FlushTimeout(30*time.Second))
		most, err := c.Server.MostPending()
		require.NoError(t, err)
		return most
	}
	eventually(t, func() bool { // it has subscribed, and a kernel takes less
		require.NoError(t, c.nc.Publish("_INBOX.in", payload))
		return pending() > 10*size
	})
	for range messages {
		require.NoError(t, c.nc.Publish("_INBOX.in", payload))
	}
	require.Greater(t, pending(), bound/2)
	require.LessOrEqual(t, pending(), bound)
	c.putTown("t")
}
