// Package server puts the parts of a world engine together in one process: an embedded NATS with
// JetStream, or a connection to an existing one; the engine; its service; and the towns of a
// world file. It is what handoffd runs, and what tests and benchmarks start.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/httpd"
	"worldengine/worldengine/index"
	"worldengine/worldengine/lease"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/metrics"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/ratelimit"
	"worldengine/worldengine/rcon"
	"worldengine/worldengine/service"
	"worldengine/worldengine/storage"
	"worldengine/worldengine/webhook"
	"worldengine/worldengine/wire"
	"worldengine/worldengine/worldfile"
)

// Sync is when the embedded NATS brings a commit to the disk.
type Sync string

// The sync modes.
const (
	// SyncAlways: before it is answered. An answer means "on disk".
	SyncAlways Sync = "always"
	// SyncInterval: every SyncInterval. Faster; an answer means "in the kernel's page cache", so
	// it survives the end of the process and not the loss of power.
	SyncInterval Sync = "interval"
)

// Defaults of what operators may set.
const (
	DefaultListen       = "127.0.0.1:4222"
	DefaultData         = "./handoffd-data"
	DefaultSyncInterval = 2 * time.Second
	DefaultDrainTimeout = 20 * time.Second
	// DefaultMaxConnections leaves room for many agents and bounds what those may cost that send
	// half a message each: up to maxRequest.
	DefaultMaxConnections = 1024
)

// Config says what a server is made of. The zero value of every member means its documented
// default.
type Config struct {
	// Listen is where the embedded NATS listens, HOST:PORT, port 0 for a free one; DefaultListen.
	Listen string
	// Data is the directory of the embedded NATS; DefaultData.
	Data string
	// Sync is when a commit is brought to the disk; SyncAlways. The interval of SyncInterval is
	// SyncInterval; DefaultSyncInterval.
	Sync         Sync
	SyncInterval time.Duration
	// MinFreeDisk is how many bytes of the disk of Data stay free: what would have to be stored
	// when there are less is refused; 0 for a fiftieth of the disk, at least 1 MiB and at most 256
	// MiB.
	MinFreeDisk int64
	// MaxConnections is how many connections of clients the embedded NATS takes, beside the
	// server's own and operators'; DefaultMaxConnections.
	MaxConnections int
	// MaxConnectionsPerAddress is how many of them may be of one address (for IPv6 one /64
	// network), loopback too; by default a quarter of MaxConnections, and all of them for loopback.
	MaxConnectionsPerAddress int
	// NATS is the URL of an existing NATS with JetStream to join, with Connection's options. With
	// it nothing is embedded, and Listen, Data and Sync mean nothing.
	NATS       string
	Connection natsconn.Options
	// HTTP is where the console and what monitoring asks are served, HOST:PORT, port 0 for a free
	// one, or empty for nowhere. It has the TLS of Access, and the bounds and rules of Listen.
	// With HTTPOrFree it is a free port of that host if the port is taken.
	HTTP       string
	HTTPOrFree bool
	// NATSWebSocket is where an existing NATS takes the WebSockets of the console, ws:// or
	// wss://HOST:PORT.
	NATSWebSocket string
	// WebSocketOrigins are the origins whose pages may use the WebSockets of HTTP beside the console,
	// such as https://agents.example.
	WebSocketOrigins []string
	// WorldFile is a JSON array of snapshot.v1 whose towns are created where they do not exist.
	// World is the same as bytes.
	WorldFile string
	World     []byte
	// RCON is the console that applies the commands of towns bound to apply.RCON; nil where
	// there is none. With it, Engine.RCON is the server's own.
	RCON *rcon.Config
	// Access is who may connect and do what; nil where every client may ask every verb, about every
	// town and for every actor. An embedded server then keeps its streams from who has not the key
	// in OperatorKeyFile, unless Open gives every client all rights. Without Access or without its
	// TLS it listens on loopback only, unless InsecureListen says that it need not. With NATS the users and
	// accounts are that server's, Connection must lead into the world's account, and Clients into
	// that of the clients.
	Access         *access.Config
	InsecureListen bool
	Open           bool
	Clients        natsconn.Options
	// Webhook has the URLs to which alerts, and proposals that begin to wait for approval, are
	// posted, and their format. Its other members are the server's.
	Webhook webhook.Config
	// Engine and Service are the settings of the parts. Service.World follows Engine.World.
	Engine  worldengine.Config
	Service service.Config
	// Logger gets warnings and errors, some of each kind within seconds (ratelimit.Logger);
	// slog.Default.
	Logger *slog.Logger

	bridge  *httpd.Bridge    // leads browsers to NATS; nil without HTTP
	metrics *metrics.Metrics // nil without HTTP
	tls     *liveTLS         // nil without TLS
	private bool             // the embedded NATS does not listen: only this process is connected
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Data == "" {
		c.Data = DefaultData
	}
	if c.Sync == "" {
		c.Sync = SyncAlways
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = DefaultSyncInterval
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = DefaultMaxConnections
	}
	if c.Engine.World == "" {
		c.Engine.World = wire.DefaultWorld
	}
	c.Service.World = c.Engine.World
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = ratelimit.Logger(c.Logger, nil)
	c.Engine.Logger, c.Service.Logger = c.Logger, c.Logger
	if c.Access != nil {
		c.Service.Access = access.NewDirectory(c.Access.Users)
	}
	return c
}

// twoAccounts reports whether clients have an account of their own beside the world's.
func (c *Config) twoAccounts() bool {
	return c.Access != nil || c.NATS == "" && !c.Open && !c.private
}

// anonymousClients reports whether clients have an account of their own and need not say who they
// are.
func (c *Config) anonymousClients() bool { return c.Access == nil && c.twoAccounts() }

// whyNoStreams adds what to do to the error of a NATS server that does not let this one at its
// streams.
func (c *Config) whyNoStreams(err error) error {
	if c.NATS == "" || !errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return err
	}
	return fmt.Errorf(
		"%w: that NATS server keeps its streams from this user; give the credentials "+
			"of one in the world's account, or, where it is a handoffd's, start that one with "+
			"--open", err)
}

// Server is a running world engine. Start makes one, Close ends it.
type Server struct {
	config    Config
	url       string
	embedded  *embedded     // nil where an existing NATS was joined
	conn      *nats.Conn    // commits, reads, and answers in the world's account
	followers *nats.Conn    // what is derived from the log
	asking    *nats.Conn    // asks plugins, on inboxes of its own; nil where there is one account
	console   *rcon.Console // nil where none is configured
	http      *httpd.Server // nil where there is none
	health    *health
	webhooks  *webhook.Sender // nil without a webhook

	standbys standbys
	lease    *lease.Lease                // nil if no other server can join
	serving  atomic.Pointer[tenure]      // nil while the server stands by
	changed  chan struct{}               // see Changed
	index    atomic.Pointer[index.Index] // has followed the log; nil before there is one
	known    *commitlog.Known            // seen by the engine of the last tenure; nil before
	stop     context.CancelFunc          // ends the goroutine that stands by
	ended    sync.WaitGroup              // of that goroutine

	access    *access.Config    // nil without access control
	tls       *liveTLS          // nil without TLS
	directory *access.Directory // of its users
}

// Start starts a server. When it returns, requests are answered, or the server stands by because
// another one of the world does: see Serving. ctx bounds the start only.
func Start(ctx context.Context, config Config) (_ *Server, err error) {
	config = config.withDefaults()
	s := &Server{
		url: config.NATS, health: newHealth(), access: config.Access,
		directory: config.Service.Access, changed: make(chan struct{}, 1), stop: func() {},
	}
	defer func() {
		if err != nil {
			s.abandon()
		}
	}()
	if err := wire.ValidateWorld(config.Engine.World); err != nil {
		return nil, err
	}
	if config.RCON != nil {
		if s.console, err = rcon.New(*config.RCON); err != nil {
			return nil, err
		}
		config.Engine.RCON = s.console
	}
	if config.tls, err = loadTLS(config.Access, config.Logger); err != nil {
		return nil, err
	}
	s.tls = config.tls
	if err = s.postToWebhooks(&config); err != nil {
		return nil, err
	}
	if s.http, err = listenHTTP(&config); err != nil {
		return nil, err
	}
	if config.NATS == "" {
		s.embedded, err = startEmbedded(&config)
		if err != nil {
			return nil, err
		}
		s.url = s.embedded.url()
		config.Engine.MayStore = s.embedded.room.Check
		config.Engine.Listening = s.embedded.listening
		config.Engine.IndexDir = filepath.Join(config.Data, "index", config.Engine.World)
		config.Engine.GroupCommits = config.Sync == SyncAlways
		config.Service.Disk = s.embedded.room.State
		config.Service.Clients = func() ([]messages.Client, error) {
			return s.embedded.clients(s.directory)
		}
		config.Service.OperatorKey = s.embedded.accounts.operatorFile
	}
	config.Service.Name = s.name()
	if s.conn, err = s.connect(config, committing); err != nil {
		return nil, err
	}
	if s.followers, err = s.connect(config, following); err != nil {
		return nil, err
	}
	if config.twoAccounts() {
		if s.asking, err = s.connect(config, asking); err != nil {
			return nil, err
		}
		config.Engine.Plugins = s.asking
	}
	if config.Access != nil {
		if err = s.tryCrossing(ctx, config); err != nil {
			return nil, err
		}
	}
	if err := s.serveHTTP(&config); err != nil {
		return nil, err
	}
	s.config = config
	if err := s.begin(ctx); err != nil {
		return nil, config.whyNoStreams(err)
	}
	return s, nil
}

// serve takes requests: in the world's account, and where an embedded NATS has one for clients who
// need not say who they are, also there. With access control those of clients cross to the world's
// account, since NATS marks them with their user on the way.
func (s *Server) serve(t *tenure, config Config) (err error) {
	entrances := []service.Entrance{{Replies: s.conn}}
	purposes := []purpose{requesting}
	if config.anonymousClients() {
		if t.answering, err = s.connect(config, answering); err != nil {
			return err
		}
		entrances = append(entrances, service.Entrance{Replies: t.answering})
		purposes = append(purposes, requestingClients)
	}
	for i := range entrances {
		in := &entrances[i]
		in.Intake = new(service.Intake)
		if in.Requests, err = s.connectThrough(in.Intake, config, purposes[i]); err != nil {
			break
		}
	}
	if err == nil {
		t.service, err = service.Serve(entrances, t.engine, config.Service)
		return err
	}
	for _, in := range entrances {
		if in.Requests != nil {
			in.Requests.Close()
		}
	}
	return err
}

// worldFile returns the world file, or nil where there is none.
func (c *Config) worldFile(ctx context.Context) ([]byte, error) {
	if c.WorldFile == "" {
		return c.World, nil
	}
	file, err := worldfile.Read(ctx, c.WorldFile)
	return file, c.inWorldFile(err)
}

// inWorldFile says in which file an error was found.
func (c *Config) inWorldFile(err error) error {
	if err != nil && c.WorldFile != "" {
		return fmt.Errorf("server: world file %s: %w", c.WorldFile, err)
	}
	return err
}

// URL returns the NATS URL at which the server is reached from its own machine.
func (s *Server) URL() string { return s.url }

// name returns the name of the server for people: its host, process and addresses.
func (s *Server) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s, pid %d, %s", host, os.Getpid(), natsconn.WithoutSecrets(s.url))
	if s.http != nil {
		name += ", " + s.http.URL()
	}
	return name
}

// OperatorKey returns the name of the file with the seed of the local operator's NKey; empty with
// access control, and where an existing NATS was joined.
func (s *Server) OperatorKey() string {
	if s.embedded == nil {
		return ""
	}
	return s.embedded.accounts.operatorFile
}

// Room returns what watches the disk of the data directory; nil where an existing NATS was joined.
func (s *Server) Room() *storage.Room {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.room
}

// Close stops taking requests, finishes and answers those in hand, gives the lease back, and ends
// what was started. ctx bounds the wait for what is in hand.
func (s *Server) Close(ctx context.Context) error {
	s.health.draining.Store(true)
	s.stop()
	s.ended.Wait()
	var err error
	if t := s.serving.Swap(nil); t != nil {
		err = s.finish(ctx, t)
	}
	if x := s.index.Load(); x != nil {
		err = errors.Join(err, x.Close())
	}
	if s.console != nil {
		s.console.Close()
	}
	s.disconnect()
	if s.embedded != nil {
		s.embedded.close()
	}
	if s.http != nil {
		err = errors.Join(err, s.http.Close(ctx))
	}
	if s.webhooks != nil {
		s.webhooks.Close(ctx)
	}
	return err
}

// abandon ends what a failed Start had started.
func (s *Server) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx) // Start returns the error that matters
}
