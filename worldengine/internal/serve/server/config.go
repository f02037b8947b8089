package server

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/ratelimit"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/hosting"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/serve/webhook"
	"worldengine/worldengine/wire"
)

// DefaultDrainTimeout is how long a server that is stopped waits for requests in hand.
const DefaultDrainTimeout = 20 * time.Second

// Config configures a server. The zero value of every member means its default. Members with help are flags of
// handoffd.
type Config struct {
	// Embedded configures the NATS that the server embeds unless External.URL is set. The server sets the
	// members without help but MinFreeDisk.
	Embedded embedded.Config `embed:""`
	External External        `embed:"" group:"An existing NATS:"`
	HTTP     HTTP            `embed:""`
	// Worlds are the worlds to serve; by default Engine.World.
	Worlds hosting.Config `kong:"-"`

	// Access has the users and their rights. Without it every client may use every verb, for every
	// town and every actor. An embedded server then opens its streams to the holder of the key in
	// embedded.OperatorKeyFile alone, unless Open gives every client all rights. Without Access or its TLS
	// the server listens on loopback only, unless InsecureListen is set. With an existing NATS its users
	// and accounts count: External.Connection must lead into the world's account, and External.Clients
	// into the clients' account.
	Access         *access.Config `kong:"-"`
	InsecureListen bool           `help:"Without --access, or without its TLS: allow --listen and --http on addresses that other machines reach."`
	Open           bool           `help:"Without --access: give every client all rights, also to write to the streams and so to the log."`

	// Webhook has the format of posts and their URLs. Alerts, and proposals that begin to wait for
	// approval, are posted. The server sets the other members of Webhook.
	Webhook webhook.Config `embed:""`
	// Engine and Service are the settings of the parts. Engine's settings of a world are for the worlds that
	// the server creates if it serves several.
	Engine  engine.Config  `kong:"-"`
	Service service.Config `kong:"-"`
	// Logger gets warnings and errors, limited by kind (ratelimit.Logger); slog.Default.
	Logger *slog.Logger `kong:"-"`

	timeouts timeouts
}

// External is an existing NATS with JetStream to join. If URL is set, nothing is embedded.
type External struct {
	URL        string           `name:"nats" help:"URL of an existing NATS with JetStream to join, instead of embedding one. Then --listen, --data, --sync, --sync-interval and --min-free-disk have no effect." placeholder:"URL"`
	Connection natsconn.Options `embed:""`
	WebSocket  string           `name:"nats-websocket" help:"With --nats: WebSocket address of that NATS for the console, ws://HOST:PORT or wss://HOST:PORT." placeholder:"URL"`
	// Clients connects into the clients' account, if there is access control.
	Clients natsconn.Options `kong:"-"`
}

// HTTP configures the console and monitoring. The TLS of Access, and the bounds and rules for
// Embedded.Listen, apply to it.
type HTTP struct {
	// Listen is HOST:PORT, port 0 for a free one, or empty for no HTTP. If the port is taken, OrFree
	// selects a free one.
	Listen  string   `kong:"-"`
	OrFree  bool     `kong:"-"`
	Origins []string `name:"websocket-origin" help:"Origins of other pages whose agents may connect to /nats and /mcp of --http, such as https://agents.example. The console's own origin always may." placeholder:"ORIGIN"`
}

// timeouts has the times that are others in tests; 0 is the constant behind the semicolon.
type timeouts struct {
	start     time.Duration // how long a start waits for an existing NATS that is not there; connectTimeout
	reconnect time.Duration // see reconnectWait
	ask       time.Duration // see pingInterval
	lease     time.Duration // how long a lease lasts without renewal; lease.DefaultTTL
}

func (c Config) withDefaults() Config {
	c.Logger = ratelimit.Logger(cmp.Or(c.Logger, slog.Default()), nil)
	c.Worlds = c.Worlds.WithDefaults(c.Engine.World)
	c.Engine.World = wire.DefaultWorld
	if len(c.Worlds.Names) > 0 {
		c.Engine.World = c.Worlds.Names[0]
	}
	c.Embedded = c.Embedded.WithDefaults()
	c.Embedded.Access, c.Embedded.Open, c.Embedded.Logger = c.Access, c.Open, c.Logger
	c.Embedded.Worlds, c.Embedded.Several = c.Worlds.Names, c.Worlds.Several()
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
	return c.Access != nil || c.External.URL == "" && c.Embedded.TwoAccounts()
}

// anonymousClients reports whether clients have an account of their own and sign in without
// credentials.
func (c *Config) anonymousClients() bool { return c.Access == nil && c.twoAccounts() }

// check returns the errors that need nothing but the configuration.
func (c *Config) check() error {
	if err := c.Worlds.Check(); err != nil {
		return err
	}
	if c.Worlds.Several() && c.Engine.Storage.DiscardHistory {
		return errors.New("server: --discard-history changes the settings of one world: start with one " +
			"--world, or use handoffctl world settings set")
	}
	return c.checkAddresses()
}

// label returns the world in the names of the server's connections; nothing for several worlds.
func (c *Config) label() string {
	if c.Worlds.Several() {
		return ""
	}
	return c.Engine.World + " "
}

// Alone returns the configuration of a server that serves one of the worlds alone.
func (c Config) Alone(world string) Config {
	c.Worlds, c.Engine.World = c.Worlds.Alone(world), world
	return c
}
