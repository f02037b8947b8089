package hosting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/worldfile"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/mcphttp"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/serve/webhook"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/wire"
)

// Config names the worlds to serve. A server of several starts if a world cannot be served, and tries it
// again.
type Config struct {
	// Names are the worlds. A world that does not exist is created. All also serves every other world of the
	// NATS, those that are made later too.
	Names []string
	All   bool
	// Files are the world files of worlds, by name, whose towns are created if they do not exist; "" is none.
	// Towns is the content of such a file for the first world.
	Files map[string]string
	Towns []byte
	// Consoles apply the commands of towns bound to apply.RCON, by world; nil is none.
	Consoles map[string]*rcon.Config
	// Backlogs keep alerts that could not be stored for the next server of the process.
	Backlogs *Backlogs
}

// Shared has the parts of the process that its worlds share. They do not change, and outlast the worlds. For Check, the
// parts that require NATS may be nil.
type Shared struct {
	// EngineConfig and ServiceConfig are the settings of each world's parts. The settings of a world in EngineConfig
	// are for the worlds that the server creates if it serves several.
	EngineConfig  engine.Config
	ServiceConfig service.Config

	// Embedded is the NATS of the worlds; nil if an existing NATS was joined.
	Embedded *embedded.NATS
	// Joinable is set if other servers can serve the worlds too, so that their writers need leases.
	Joinable bool
	// LeaseTTL is how long a lease lasts without renewal; 0 for lease.DefaultTTL.
	LeaseTTL time.Duration
	// Conn commits, reads, and answers in the world's account; JetStream is over it.
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	// ReadConn is for readers of the log.
	ReadConn *nats.Conn
	// ReplyConn answers in the clients' account; nil if no requests are received there.
	ReplyConn *nats.Conn
	// ConnectClient connects to the clients' account, for one question to plugins.
	ConnectClient func() (*nats.Conn, error)

	// Service receives the requests of all worlds.
	Service *service.Service
	// Models leads language models to the worlds; nil without HTTP. URL is the address of HTTP.
	Models *mcphttp.Gate
	URL    string
	// Metrics counts for each world; nil without HTTP.
	Metrics *metrics.Metrics
	// Webhooks posts alerts of each world; nil without a webhook.
	Webhooks *webhook.Sender
	// Grant gives users their permissions among the worlds that worlds returns.
	Grant func(worlds func() []string) error
	// Explain adds a remedy to the error of an existing NATS that has no room for streams, or denies them.
	Explain func(error) error
}

// Backlogs keep the alerts of each world that could not be stored, for the next server of the process.
// The zero value is empty; it is safe for concurrent use.
type Backlogs struct{ byWorld sync.Map }

func (b *Backlogs) get(world string) *alerts.Backlog {
	backlog, _ := b.byWorld.LoadOrStore(world, new(alerts.Backlog))
	return backlog.(*alerts.Backlog)
}

func (b *Backlogs) forget(world string) { b.byWorld.Delete(world) }

// WithDefaults returns the configuration with its defaults; world is the one to serve if none is named.
func (c Config) WithDefaults(world string) Config {
	if len(c.Names) == 0 && !c.All {
		c.Names = []string{cmp.Or(world, wire.DefaultWorld)}
	}
	c.Backlogs = cmp.Or(c.Backlogs, new(Backlogs))
	return c
}

// Several reports whether the server may serve more than one world.
func (c *Config) Several() bool { return c.All || len(c.Names) > 1 }

// mayHost reports whether the server serves a world of a name, if there is one.
func (c *Config) mayHost(world string) bool { return c.All || slices.Contains(c.Names, world) }

// Check returns an error for worlds that no server can serve, for files of worlds that this server does not name, and
// for invalid consoles.
func (c *Config) Check() error {
	for i, world := range c.Names {
		if err := wire.ValidateWorld(world); err != nil {
			return fmt.Errorf("hosting: --world: %w", err)
		}
		if slices.Contains(c.Names[:i], world) {
			return fmt.Errorf("hosting: the world %s is named twice: give each --world once", world)
		}
	}
	for _, world := range slices.Sorted(maps.Keys(c.Files)) {
		if !slices.Contains(c.Names, world) {
			return errNotNamed("--world-file", world)
		}
	}
	for _, world := range slices.Sorted(maps.Keys(c.Consoles)) {
		if !c.mayHost(world) {
			return errNotNamed("--rcon-config", world)
		}
		if console := c.Consoles[world]; console != nil {
			if _, err := rcon.New(*console); err != nil {
				return err
			}
		}
	}
	return nil
}

func errNotNamed(flag, world string) error {
	return fmt.Errorf("hosting: %s is for the world %s, which no --world names: add --world %s", flag, world, world)
}

// Alone returns the configuration of a server that serves one of the worlds alone.
func (c Config) Alone(world string) Config {
	if slices.Index(c.Names, world) != 0 {
		c.Towns = nil
	}
	c.Names, c.All = []string{world}, false
	c.Files = map[string]string{world: c.Files[world]}
	c.Consoles = map[string]*rcon.Config{world: c.Consoles[world]}
	return c
}

// worldFile returns the content of the world file of a world; nil if it has none.
func (c *Config) worldFile(world string) ([]byte, error) {
	if name := c.Files[world]; name != "" {
		file, err := platform.ReadFile(name, worldfile.MaxBytes)
		return file, c.worldFileError(world, err)
	}
	if slices.Index(c.Names, world) == 0 {
		return c.Towns, nil
	}
	return nil, nil
}

// worldFileError adds the name of the file of a world to an error that was found in it.
func (c *Config) worldFileError(world string, err error) error {
	if name := c.Files[world]; err != nil && name != "" {
		return fmt.Errorf("hosting: world file %s: %w", name, err)
	}
	return err
}

// checkWorld returns how many towns the file of a world has, or the error that would keep an engine from
// starting with it.
func (c *Config) checkWorld(world engine.Config) (towns int, err error) {
	if _, err := engine.CheckConfig(world, nil); err != nil {
		return 0, err
	}
	file, err := c.worldFile(world.World)
	if err != nil {
		return 0, err
	}
	towns, err = engine.CheckConfig(world, file)
	return towns, c.worldFileError(world.World, err)
}
