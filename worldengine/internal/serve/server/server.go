// Package server runs the parts of a world engine in one process: NATS with JetStream, embedded or
// existing; the engine; its service; the towns of a world file. handoffd, tests and benchmarks
// start it.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/ratelimit"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/serve/webhook"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/storage"
	"worldengine/worldengine/wire"
)

// Sync is when the embedded NATS writes a commit to the disk.
type Sync string

// The sync modes.
const (
	// SyncAlways: before the commit is answered. An answer means "on disk".
	SyncAlways Sync = "always"
	// SyncInterval: once in each Config.SyncInterval, which is faster. An answer means "in the
	// kernel's page cache", so it survives the end of the process but no loss of power.
	SyncInterval Sync = "interval"
)

// Defaults of the settings of operators.
const (
	DefaultListen       = "127.0.0.1:4222"
	DefaultData         = "./handoffd-data"
	DefaultSyncInterval = 2 * time.Second
	DefaultDrainTimeout = 20 * time.Second
	// DefaultMaxConnections leaves room for many agents. It bounds the memory for unfinished
	// messages, each of up to maxRequest.
	DefaultMaxConnections = 1024
)

// Config configures a server. The zero value of every member means its default. Members with help
// are flags of handoffd.
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
	// With NATS, nothing is embedded, and Listen, Data and Sync have no effect.
	NATS       string           `name:"nats" help:"URL of an existing NATS with JetStream to join, instead of embedding one." placeholder:"URL" group:"An existing NATS:"`
	Connection natsconn.Options `embed:"" group:"An existing NATS:"`
	// HTTP is the address of the console and of monitoring, HOST:PORT, port 0 for a free one, or
	// empty for none. The TLS of Access, and the bounds and rules for Listen, apply to it. If the
	// port is taken, HTTPOrFree selects a free one.
	HTTP             string   `kong:"-"`
	HTTPOrFree       bool     `kong:"-"`
	NATSWebSocket    string   `name:"nats-websocket" help:"With --nats: WebSocket address of that NATS for the console, ws://HOST:PORT or wss://HOST:PORT." placeholder:"URL" group:"An existing NATS:"`
	WebSocketOrigins []string `name:"websocket-origin" help:"Origins of other pages whose agents may connect to /nats and /mcp of --http, such as https://agents.example. The console's own origin always may." placeholder:"ORIGIN"`
	// Worlds are the names of the worlds to serve; Engine.World if there are none. A world that does
	// not exist is created. AllWorlds also serves every other world of the NATS, those that are made
	// later too. A server of several worlds starts if a world cannot be served, and tries it again.
	// The settings of Engine are then for the worlds that the server creates.
	Worlds    []string `kong:"-"`
	AllWorlds bool     `kong:"-"`
	// WorldFile has the towns of the first world to create if they do not exist yet; World is the
	// content of such a file. WorldFiles are the files of worlds by their names.
	WorldFile  string            `kong:"-"`
	World      []byte            `kong:"-"`
	WorldFiles map[string]string `kong:"-"`
	// RCON is the console that applies the commands of towns bound to apply.RCON in the first world;
	// nil for none. Consoles has the consoles of worlds by their names.
	RCON     *rcon.Config            `kong:"-"`
	Consoles map[string]*rcon.Config `kong:"-"`
	// Access has the users and their rights. Without it every client may use every verb, for every
	// town and every actor. An embedded server then opens its streams to the holder of the key in
	// OperatorKeyFile alone, unless Open gives every client all rights. Without Access or its TLS
	// the server listens on loopback only, unless InsecureListen is set. With NATS, the users and
	// accounts of the existing NATS count: Connection must lead into the world's account, and
	// Clients into the clients' account.
	Access         *access.Config   `kong:"-"`
	InsecureListen bool             `help:"Without --access, or without its TLS: allow --listen and --http on addresses that other machines reach."`
	Open           bool             `help:"Without --access: give every client all rights, also to write to the streams and so to the log."`
	Clients        natsconn.Options `kong:"-"`
	// Webhook has the format of posts and their URLs. Alerts, and proposals that begin to wait for
	// approval, are posted. The server sets the other members of Webhook.
	Webhook webhook.Config `embed:""`
	// Engine and Service are the settings of the parts.
	Engine  engine.Config  `kong:"-"`
	Service service.Config `kong:"-"`
	// Backlogs keep alerts that could not be stored for the next server of the process.
	Backlogs *Backlogs `kong:"-"`
	// Logger gets warnings and errors, limited by kind (ratelimit.Logger); slog.Default.
	Logger *slog.Logger `kong:"-"`

	private bool // the embedded NATS does not listen: only this process is connected
	waits   waits
}

// waits has what tests do not wait for so long; 0 is the constant behind the semicolon.
type waits struct {
	start     time.Duration // how long a start waits for an existing NATS that is not there; startWait
	reconnect time.Duration // see reconnectWait
	ping      time.Duration // see pingInterval
	write     time.Duration // see writeDeadline
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.Data = cmp.Or(c.Data, DefaultData)
	c.Sync = cmp.Or(c.Sync, SyncAlways)
	c.SyncInterval = cmp.Or(c.SyncInterval, DefaultSyncInterval)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	if len(c.Worlds) == 0 && !c.AllWorlds {
		c.Worlds = []string{cmp.Or(c.Engine.World, wire.DefaultWorld)}
	}
	c.Engine.World = wire.DefaultWorld
	if len(c.Worlds) > 0 {
		c.Engine.World = c.Worlds[0]
	}
	c.Backlogs = cmp.Or(c.Backlogs, new(Backlogs))
	c.Logger = ratelimit.Logger(cmp.Or(c.Logger, slog.Default()), nil)
	c.Engine.Logger, c.Service.Logger = c.Logger, c.Logger
	if c.Access != nil {
		c.Service.Access = access.NewDirectory(c.Access.Users)
	}
	c.Service.PerTown, c.Service.Total = c.Engine.Bounds.PerTown, c.Engine.Bounds.Total
	c.Engine.Bounds.Pool = c.Engine.NewPool()
	return c
}

// twoAccounts reports whether clients have an account of their own beside the world's.
func (c *Config) twoAccounts() bool {
	return c.Access != nil || c.NATS == "" && !c.Open && !c.private
}

// anonymousClients reports whether clients have an account of their own and sign in without
// credentials.
func (c *Config) anonymousClients() bool { return c.Access == nil && c.twoAccounts() }

// quotas are the errors of an account of NATS that has reached one of its limits.
var quotas = []jetstream.ErrorCode{
	jetstream.ErrorCode(natsserver.JSAccountResourcesExceededErr),
	jetstream.ErrorCode(natsserver.JSMaximumStreamsLimitErr),
	jetstream.ErrorCode(natsserver.JSStorageResourcesExceededErr),
}

// noStreamsError adds a remedy to the error of an existing NATS that has no streams, denies them, or has
// no room for them.
func (c *Config) noStreamsError(err error) error {
	switch {
	case c.NATS == "":
		return err
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: that NATS server has no JetStream; start it with JetStream", err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w: that NATS server denies this user its streams; give the credentials "+
			"of a user in the world's account or, if it is a handoffd's, start that one with --open", err)
	}
	refused, _ := errors.AsType[*jetstream.APIError](err)
	if refused != nil && slices.Contains(quotas, refused.ErrorCode) {
		return fmt.Errorf("%w: that NATS has no room for the world: raise the limits of its account, or "+
			"remove a world", err)
	}
	return err
}

// Server is a running world engine. Start makes one, Close ends it.
type Server struct {
	config    Config
	url       string
	embedded  *embedded        // nil if an existing NATS was joined
	conn      *nats.Conn       // commits, reads, and answers in the world's account
	followers *nats.Conn       // for readers of the log
	dials     atomic.Uint64    // of conn and followers
	asking    *nats.Conn       // asks plugins, on inboxes of its own; nil if there is one account
	keeper    *lease.Keeper    // renews the leases of all worlds
	service   *service.Service // receives the requests of all worlds
	answering *nats.Conn       // answers in the clients' account; nil if no requests are received there
	http      *httpd.Server    // nil without HTTP
	bridge    *httpd.Bridge    // leads browsers to NATS; nil without HTTP
	models    *models          // nil without HTTP
	metrics   *metrics.Metrics // nil without HTTP
	webhooks  *webhook.Sender  // nil without a webhook
	tls       *liveTLS         // nil without TLS

	accessing sync.Mutex     // guards access and granted
	access    *access.Config // in force; nil without access control
	granted   []string       // the worlds among which users have permissions; sorted

	manager  *manager
	removing sync.Map // the worlds that are being removed
	placer   *placer  // nil if no other server can join
	worlds   registry
	starts   chan struct{}      // has an element for each world that is being started
	changed  chan struct{}      // see Changed
	draining atomic.Bool        // Close was called
	look     context.CancelFunc // ends looking for worlds
	looking  sync.WaitGroup
}

func newServer(config Config) *Server {
	config = config.withDefaults()
	return &Server{
		config: config, url: config.NATS, access: config.Access, granted: slices.Sorted(slices.Values(config.Worlds)),
		starts: make(chan struct{}, startsAtOnce), changed: make(chan struct{}, 1), look: func() {},
	}
}

// Start starts a server. When it returns, requests are answered, or the server stands by because
// another server of the world answers them: see Serving. ctx bounds the start only.
func Start(ctx context.Context, config Config) (*Server, error) {
	s := newServer(config)
	if err := s.start(ctx); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	if err := s.config.checkWorlds(); err != nil {
		return err
	}
	if err := s.config.checkAddresses(); err != nil {
		return err
	}
	if err := s.openParts(); err != nil {
		return err
	}
	if err := s.listenHTTP(); err != nil {
		return err
	}
	if s.config.NATS == "" {
		if err := s.embed(); err != nil {
			return err
		}
	}
	s.config.Service.Name, s.config.Service.ID = s.name(), nuid.Next()
	if err := s.connectAll(ctx); err != nil {
		return err
	}
	if err := s.serveRequests(); err != nil {
		return err
	}
	if err := s.serveHTTP(); err != nil {
		return err
	}
	if s.embedded == nil || s.config.Open {
		var err error
		if s.placer, err = startPlacer(s); err != nil {
			return err
		}
	}
	if err := s.manageWorlds(); err != nil {
		return err
	}
	return s.serveWorlds(ctx)
}

// openParts makes the parts that do not require NATS, of the server and of its worlds.
func (s *Server) openParts() (err error) {
	if s.tls, err = loadTLS(s.config.Access, s.config.Logger); err != nil {
		return err
	}
	if posts := s.config.Webhook; len(posts.URLs) > 0 {
		posts.Logger = s.config.Logger
		if s.webhooks, err = webhook.New(posts); err != nil {
			return err
		}
	}
	for _, world := range s.config.Worlds {
		h, err := newHosted(s, world)
		if err != nil {
			return err
		}
		h.given = true
		s.worlds.add(h)
	}
	return nil
}

// embed starts the embedded NATS, on which the engine and the service then rest.
func (s *Server) embed() (err error) {
	c := &s.config
	if s.embedded, err = startEmbedded(c, s.tls, s.bridge); err != nil {
		return err
	}
	s.url = s.embedded.url()
	c.Engine.Storage.Disk, c.Engine.Listening = s.embedded.room, s.embedded.listening
	c.Engine.Storage.GroupCommits = c.Sync == SyncAlways
	c.Service.Disk = s.embedded.room.State
	c.Service.OperatorKey = s.OperatorKey()
	return nil
}

// connectAll makes the connections that last as long as the server.
func (s *Server) connectAll(ctx context.Context) (err error) {
	if s.conn, err = s.connectFirst(ctx); err != nil {
		return err
	}
	// Without the timeout, renewals that get no answer would pile up.
	js, err := jetstream.New(s.conn, jetstream.WithPublishAsyncTimeout(lease.TTL))
	if err != nil {
		return fmt.Errorf("server: JetStream: %w", err)
	}
	s.keeper = lease.NewKeeper(js)
	if s.followers, err = s.connect(following, nil); err != nil {
		return err
	}
	if s.embedded != nil {
		if err := s.embedded.followStreams(s.conn); err != nil {
			return err
		}
	}
	if s.config.twoAccounts() {
		if s.asking, err = s.connect(asking, nil); err != nil {
			return err
		}
		s.config.Engine.Plugins = s.asking
	}
	if s.config.Access != nil && s.embedded == nil {
		return s.tryCrossing(ctx)
	}
	return nil
}

// URL returns the NATS URL at which the server is reached from its own machine.
func (s *Server) URL() string { return s.url }

// name returns the name of the server for people: its host, process and addresses.
func (s *Server) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s, pid %d, %s", host, os.Getpid(), natsconn.RedactURLs(s.url))
	if s.http != nil {
		name += ", " + s.http.URL()
	}
	return name
}

// OperatorKey returns the name of the file with the seed of the local operator's NKey; empty with
// access control or an existing NATS.
func (s *Server) OperatorKey() string {
	if s.embedded == nil {
		return ""
	}
	return s.embedded.accounts.operator.file
}

// Room returns the watch on the disk of the data directory; nil if an existing NATS was joined.
func (s *Server) Room() *storage.Room {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.room
}

// Close ends all that Start has started, in an order that loses no answer: first no language model and no other server
// can bring new work, then each world answers the requests that it has received and releases its lease, then the
// connections that carried the answers close, and NATS after them. ctx bounds the wait for the answers.
func (s *Server) Close(ctx context.Context) error {
	s.draining.Store(true)
	if s.manager != nil {
		s.manager.stopCreations()
	}
	if s.models != nil {
		s.models.handler.Drain()
	}
	if s.placer != nil {
		s.placer.drain()
	}
	s.look()
	s.looking.Wait()
	err := s.worlds.close(ctx)
	if s.service != nil {
		err = errors.Join(err, s.service.Stop(ctx))
	}
	if s.models != nil {
		err = errors.Join(err, s.models.close(ctx))
	}
	if s.placer != nil {
		s.placer.close()
	}
	s.config.Engine.Bounds.Pool.Close()
	for _, nc := range []*nats.Conn{s.conn, s.followers, s.asking, s.answering} {
		if nc != nil {
			nc.Close()
		}
	}
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

// abandon ends all parts of a server that does not serve.
func (s *Server) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx) // Start returns the error that matters
}
