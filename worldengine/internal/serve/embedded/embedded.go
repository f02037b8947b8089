// Package embedded runs a NATS server with JetStream in this process, on files in a data directory that it
// alone uses. It decides who may sign in, with which rights, and how many may: see accounts.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/passwords"
	"worldengine/worldengine/internal/serve/tlsfiles"
	"worldengine/worldengine/internal/store/streamdirs"
)

// Sync is when NATS writes a commit to the disk.
type Sync string

// The sync modes.
const (
	// SyncAlways: before the commit is answered. An answer means "on disk".
	SyncAlways Sync = "always"
	// SyncInterval: once in each Config.SyncInterval, which is faster. An answer means "in the
	// kernel's page cache", so it survives the end of the process but no loss of power.
	SyncInterval Sync = "interval"
)

// Defaults of Config.
const (
	DefaultListen       = "127.0.0.1:4222"
	DefaultData         = "./handoffd-data"
	DefaultSyncInterval = 2 * time.Second
	// DefaultMaxConnections leaves room for many agents. It bounds the memory for unfinished
	// messages, each of up to MaxRequest.
	DefaultMaxConnections = 1024
)

// Config configures a NATS server. The zero value of every member means its default. Members with help are
// flags of handoffd; the other ones are set by the server that embeds NATS.
type Config struct {
	Listen       string        `help:"Address of the embedded NATS, HOST:PORT; port 0 picks a free one." default:"127.0.0.1:4222"`
	Data         string        `help:"Directory of the embedded NATS. One server uses it at a time." default:"./handoffd-data" type:"path"`
	Sync         Sync          `help:"When a commit reaches the disk: before it is answered (always), or every --sync-interval (interval), which is faster, but a loss of power may cost the last commits." enum:"always,interval" default:"always" group:"Storage:"`
	SyncInterval time.Duration `help:"How often commits reach the disk with --sync=interval." default:"2s" group:"Storage:"`
	// MinFreeDisk is how many bytes of the disk of Data stay free. If fewer are free, requests that
	// have to be stored are refused. 0 is a fiftieth of the disk, at least 1 MiB and at most 256
	// MiB.
	MinFreeDisk              int64 `kong:"-"`
	MaxConnections           int   `help:"Limit of client connections to the embedded NATS. Over HTTP it limits requests, and WebSockets too." default:"1024" group:"Bounds:"`
	MaxConnectionsPerAddress int   `help:"Limit of connections from one address (IPv6: one /64 network). A further one is refused as Authorization Violation, and logged. 0 is a quarter of --max-connections, and no limit of its own for loopback. Over HTTP the limit is at least 16, since a browser opens several." default:"0" group:"Bounds:"`

	// Access has the users, who alone may sign in; nil lets everybody in. Without it clients reach the
	// streams only if Open is set.
	Access *access.Config `kong:"-"`
	Open   bool           `kong:"-"`
	// Private keeps NATS from listening: only this process is connected.
	Private bool `kong:"-"`
	// Worlds are the worlds that the server names. If it may serve others too, Several is set: then the
	// streams of one world may be damaged.
	Worlds  []string `kong:"-"`
	Several bool     `kong:"-"`
	// TLS is nil without TLS, and Bridge, which forwards browsers to NATS, without HTTP.
	TLS    *tlsfiles.Live `kong:"-"`
	Bridge *httpd.Bridge  `kong:"-"`
	Logger *slog.Logger   `kong:"-"`
	// PingInterval is the silence after which a client is pinged; 20 s. WriteDeadline is how long a client
	// may leave a message unread; 10 s.
	PingInterval  time.Duration `kong:"-"`
	WriteDeadline time.Duration `kong:"-"`
}

// WithDefaults returns the configuration with the defaults of its flags.
func (c Config) WithDefaults() Config {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.Data = cmp.Or(c.Data, DefaultData)
	c.Sync = cmp.Or(c.Sync, SyncAlways)
	c.SyncInterval = cmp.Or(c.SyncInterval, DefaultSyncInterval)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	return c
}

// TwoAccounts reports whether clients have an account of their own beside the world's.
func (c *Config) TwoAccounts() bool { return c.Access != nil || !c.Open && !c.Private }

// maxPayload is the largest message that the embedded NATS accepts from the engine and from
// operators. The largest records have a town's state, an agent's handoff and the decision, or the
// events of an append. MaxRequest is the largest message from clients: a quarter more than the
// largest request (run.append, 1 MB). So a slightly too large request gets a precise 413, not a
// closed connection.
const (
	maxPayload = 8 << 20
	MaxRequest = 1280 << 10
)

// maxPending bounds the bytes that NATS keeps for a connection that does not read. Above three
// quarters of maxPending NATS delivers nothing to the connection, and requests to it get "no
// responders". So a flood of requests does not close the server's own connections.
const maxPending = 128 << 20

// maxStore is more than any disk has: package diskspace watches the disk. NATS's own
// bound would stay at three quarters of the room that was free at its start.
const maxStore = 1 << 60

// Bounds of the cost of clients for an embedded NATS; docs/reliability.md has their sum. NATS keeps
// up to maxPending for a client that does not read, for 10 s.
const (
	// ownConnections is how many connections NATS accepts for operators and for the server itself,
	// in addition to the clients' connections.
	ownConnections = 16
	// maxSubscriptions bounds the subscriptions of one connection.
	maxSubscriptions = 10_000
	// maxPings is how often a silent client is pinged before it counts as gone.
	maxPings = 2
)

// noOrigin is the origin of no page (RFC 6761, section 6.4).
const noOrigin = "http://origin.invalid"

// loginTimeout bounds the TLS handshake of a connection, and the sign-in after it.
const loginTimeout = passwords.HashTimeout

const (
	pingInterval  = 20 * time.Second
	writeDeadline = natsserver.DEFAULT_FLUSH_DEADLINE
)

// ErrDataInUse means that another server works on the data directory. Stop it, or give another.
var ErrDataInUse = errors.New("embedded: another server uses this data directory")

// NATS is a NATS server within this process. Start makes one, Close ends it. It is safe for concurrent use.
type NATS struct {
	config   Config
	server   *natsserver.Server
	streams  streamdirs.Data
	lock     *platform.FileLock
	disk     *diskspace.Watch
	accounts *accounts
	lost     map[string]error // by world, why NATS does not have all its streams
}

// Start starts a NATS server.
func Start(config Config) (_ *NATS, err error) {
	config = config.WithDefaults()
	e := &NATS{config: config, streams: streamdirs.Data{Dir: config.Data, Logger: config.Logger},
		lost: map[string]error{}}
	if e.lock, err = lockDataDir(config.Data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = e.Close(context.Background())
		}
	}()
	if e.disk, err = diskspace.Open(config.Data, config.MinFreeDisk); err == nil {
		err = e.disk.Check() // a server that can store nothing does not start
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	if e.accounts, err = newAccounts(&e.config); err != nil {
		return nil, err
	}
	options := natsOptions(&config)
	if err = e.accounts.configure(options); err != nil {
		return nil, err
	}
	ns, err := natsserver.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("embedded: embedded NATS: %w", err)
	}
	e.accounts.addresses.nats = ns
	if err = e.accounts.replaceUsers(ns, config.Access, config.Worlds); err != nil {
		return nil, err
	}
	if err = e.open(ns); err != nil {
		return nil, err
	}
	// A killed server may have left messages that are not on the disk yet. They MUST be before
	// anybody sees them.
	if err = e.streams.Sync(); err != nil {
		return nil, err
	}
	return e, nil
}

// natsOptions returns the options of the NATS server that do not depend on its accounts.
func natsOptions(config *Config) *natsserver.Options {
	host, port, _ := httpd.SplitListen("--listen", config.Listen) // its caller has checked it
	if port == 0 {
		port = natsserver.RANDOM_PORT
	}
	options := &natsserver.Options{
		ServerName: "handoffd", Host: host, Port: port,
		JetStream: true, StoreDir: config.Data, JetStreamMaxStore: maxStore,
		SyncAlways: config.Sync == SyncAlways, SyncInterval: config.SyncInterval,
		MaxPayload: maxPayload, MaxConn: config.MaxConnections, MaxPending: maxPending,
		NoFastProducerStall: true, MaxSubs: maxSubscriptions,
		PingInterval: cmp.Or(config.PingInterval, pingInterval), MaxPingsOut: maxPings,
		WriteDeadline: cmp.Or(config.WriteDeadline, writeDeadline),
		NoSigs:        true, DontListen: config.Private,
	}
	if config.Bridge != nil {
		// The bridge checks the origin of a request, and does not forward the origin. A request
		// with an origin has bypassed the bridge.
		options.Websocket = natsserver.WebsocketOpts{
			Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoTLS: true,
			HandshakeTimeout: loginTimeout, AllowedOrigins: []string{noOrigin},
		}
	}
	return options
}

// open starts the NATS server, which opens the streams. If open fails, the caller has to call Close. A stream
// that NATS cannot open is the failure of its world, and of a server of that world alone.
func (e *NATS) open(ns *natsserver.Server) error {
	kept, err := e.streams.Keep()
	if err != nil {
		return err
	}
	worlds, err := e.streams.Worlds()
	if err != nil {
		return err
	}
	dirs := map[string][]streamdirs.Dir{}
	worlds = append(worlds, e.config.Worlds...)
	slices.Sort(worlds)
	for _, world := range slices.Compact(worlds) {
		if err := kept.LinkWorld(world); err != nil {
			e.lost[world] = err
		}
		dirs[world] = e.streams.Needed(world)
	}
	if err = e.checkOnlyWorld(); err == nil {
		err = e.start(ns)
	}
	lost := map[string]bool{}
	if err == nil {
		lost, err = e.findLost(dirs)
	}
	if err == nil {
		err = e.checkOnlyWorld()
	}
	if err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return errors.Join(err, kept.PutBack(nil))
	}
	return kept.PutBack(lost)
}

// checkOnlyWorld returns the failure of the world of a server that serves one alone.
func (e *NATS) checkOnlyWorld() error {
	if e.config.Several || len(e.config.Worlds) == 0 {
		return nil
	}
	return e.lost[e.config.Worlds[0]]
}

// Lost returns why NATS does not have all streams of a world; nil if it has.
func (e *NATS) Lost(world string) error { return e.lost[world] }

// findLost notes the worlds of which NATS has not loaded all streams. It returns the streams that are not
// loaded.
func (e *NATS) findLost(dirs map[string][]streamdirs.Dir) (lost map[string]bool, err error) {
	detail, err := e.server.JszAccount(&natsserver.JSzOptions{
		Account: natsserver.DEFAULT_GLOBAL_ACCOUNT, Streams: true,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded: streams of the embedded NATS: %w", err)
	}
	loaded := map[string]bool{}
	for i := range detail.Streams {
		loaded[detail.Streams[i].Name] = true
	}
	lost = map[string]bool{}
	for world := range dirs {
		missing, err := streamdirs.Missing(loaded, dirs[world])
		if err != nil {
			e.lost[world] = err
		}
		for _, name := range missing {
			lost[name] = true
		}
	}
	return lost, nil
}

// start starts the NATS server. If start fails, the caller has to call Close.
func (e *NATS) start(ns *natsserver.Server) error {
	gaveUp := make(chan string, 1)
	logger := newNATSLogger(e.config.Logger.With("component", "nats"), gaveUp, e.disk.Fail)
	ns.SetLoggerV2(logger, false, false, false)
	e.server = ns
	ns.Start()
	if err := awaitNATS(ns, gaveUp); err != nil {
		return fmt.Errorf("embedded: NATS on %s with the data directory %s: %w; give others with "+
			"--listen and --data", e.config.Listen, e.config.Data, err)
	}
	if e.accounts.operator.file == "" {
		return nil
	}
	return e.accounts.operator.write(ns.Addr().String())
}

// URL returns the URL of the NATS server from its own machine.
func (e *NATS) URL() string {
	scheme, address, _ := strings.Cut(e.server.ClientURL(), "://")
	return scheme + "://" + httpd.LocalAddress(address)
}

// awaitNATS waits until a NATS server that was started listens, or gives up.
func awaitNATS(ns *natsserver.Server, gaveUp <-chan string) error {
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		if ns.ReadyForConnections(100 * time.Millisecond) {
			return nil
		}
		select {
		case why := <-gaveUp:
			return errors.New(why)
		default:
		}
	}
	return errors.New("it does not listen")
}

// lockDataDir makes the directory and locks it for this process. The kernel unlocks it when the
// process ends, even by a crash.
func lockDataDir(dir string) (*platform.FileLock, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("embedded: data directory: %w", err)
	}
	lock, err := platform.Lock(filepath.Join(dir, "handoffd.lock"))
	if errors.Is(err, platform.ErrLocked) {
		return nil, fmt.Errorf("%w: %s: stop that server, or give another directory with --data", ErrDataInUse, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: data directory: lock: %w", err)
	}
	return lock, nil
}

// WebSocketURL returns the URL at which the bridge reaches NATS.
func (e *NATS) WebSocketURL() (*url.URL, error) { return url.Parse(e.server.WebsocketURL()) }

// Server returns the NATS server itself.
func (e *NATS) Server() *natsserver.Server { return e.server }

// Disk returns the watch on the disk of the data directory.
func (e *NATS) Disk() *diskspace.Watch { return e.disk }

// IndexDir returns the directory for the index of a world.
func (e *NATS) IndexDir(world string) string { return filepath.Join(e.config.Data, "index", world) }

// Dial connects within the process, whatever the address.
func (e *NATS) Dial(string, string) (net.Conn, error) { return e.server.InProcessConn() }

// Close ends the NATS server if it was started, and syncs its files, which NATS does not. Then Close
// unlocks the data directory.
func (e *NATS) Close(context.Context) error {
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
		if err := e.streams.Sync(); err != nil {
			e.config.Logger.Error("the data is not known to be on the disk: a loss of power now may cost the "+
				"last commits", "error", err)
		}
	}
	return e.lock.Close()
}

// SyncWorld syncs the directories of a world's streams.
func (e *NATS) SyncWorld(world string) error { return e.streams.SyncWorld(world) }

// FollowStreams syncs the directory of each stream that NATS makes or updates from now on: with
// SyncInterval NATS never syncs a configuration. nc is connected to the world's account.
func (e *NATS) FollowStreams(nc *nats.Conn) error {
	for _, change := range []string{
		natsserver.JSAdvisoryStreamCreatedPre, natsserver.JSAdvisoryStreamUpdatedPre,
	} {
		_, err := nc.Subscribe(change+".*", func(msg *nats.Msg) {
			name := strings.TrimPrefix(msg.Subject, change+".")
			if err := e.streams.SyncConfig(name); err != nil {
				e.config.Logger.Error("the configuration of a stream is not known to be on the disk",
					"stream", name, "error", err)
			}
		})
		if err != nil {
			return fmt.Errorf("embedded: changes of streams: %w", err)
		}
	}
	return nil
}

// HasSubscribers reports whether a client, of whatever account, hears the messages of the world's account on a
// subject.
func (e *NATS) HasSubscribers(subject string) bool {
	return e.server.GlobalAccount().Interest(subject) > 0
}
