package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/rcon"
	"worldengine/worldengine/server"
	"worldengine/worldengine/service"
	"worldengine/worldengine/town"
)

// serveCommand serves a world until the program is told to stop.
type serveCommand struct {
	Listen       string           `help:"Where the embedded NATS listens, HOST:PORT; port 0 picks a free one." default:"127.0.0.1:4222"`
	Data         string           `help:"Directory of the embedded NATS, which one server uses at a time." default:"./handoffd-data" type:"path"`
	World        string           `help:"Name of the world." default:"main"`
	WorldFile    string           `help:"JSON array of snapshot.v1; its towns are created where they do not exist yet." type:"existingfile"`
	Sync         server.Sync      `help:"When a commit is brought to the disk: before it is answered (always), or every --sync-interval (interval; faster, a loss of power may cost the last ones)." enum:"always,interval" default:"always"`
	SyncInterval time.Duration    `help:"How often the disk is synced with --sync=interval." default:"2s"`
	MaxConns     int              `name:"max-connections" help:"How many connections the embedded NATS takes." default:"1024"`
	Apply        string           `help:"Who applies the commands of towns that do not say it themselves: the built-in rules (local), the plugin of the game server that hosts the town (plugin), or commands on the console of a game server without one (rcon)." enum:"local,plugin,rcon" default:"local"`
	RCONConfig   string           `name:"rcon-config" help:"Which console applies the commands of towns bound to rcon, and what runs there: see docs/rcon.md." type:"existingfile"`
	Plugin       pluginFlags      `embed:"" prefix:"plugin-"`
	NATS         string           `name:"nats" help:"URL of an existing NATS with JetStream to join; nothing is embedded then." placeholder:"URL"`
	Connection   natsconn.Options `embed:""`

	Access         string       `help:"Who may connect and do what: see docs/access.md. Without it everybody may do everything." type:"existingfile"`
	InsecureListen bool         `help:"Listen beyond this machine without --access."`
	Clients        clientsFlags `embed:"" prefix:"clients-" group:"connection"`
	CheckConfig    bool         `help:"Say what would be served, or what is wrong with the settings, and end."`

	DedupeRetention    time.Duration `help:"How long the receipt of an accepted handoff is kept." default:"720h"`
	RunEventsRetention time.Duration `name:"runevents-retention" help:"How long run events are kept on the bus." default:"720h"`
	RunEventsLimit     int64         `name:"runevents-limit" help:"How many run events are kept on the bus at most; the oldest go first. -1 for no limit." default:"10000000"`
	HistoryPerTown     int64         `help:"How many commits, and how many refused runs, are kept of a town." default:"10000"`
	Replicas           int           `help:"How many servers of a NATS cluster keep each stream." default:"1"`
	MaxWaiting         int           `help:"How many requests that change towns may wait or be in hand; at most 1000000, and what does not fit gets 429: see docs/overload.md." default:"2048"`
	MaxHeld            int64         `help:"How many MiB the requests that wait may take; at most 1048576, and what does not fit gets 429: see docs/overload.md." default:"64"`
	TenantID           string        `help:"tenantId of the run events." default:"default"`
	ProjectID          string        `help:"projectId of the run events; the world's name where it is not given."`
	EnvironmentID      string        `help:"environmentId of the run events." default:"local"`
	Projector          bool          `help:"Project the run events as they come, alert about invalid ones, and tell how far that is behind."`
	Rules              rulesFlags    `embed:"" prefix:"rules-"`

	DrainTimeout time.Duration `help:"How long requests in hand may take to finish at the end." default:"20s"`
	LogFormat    string        `help:"Format of the log: text or json." enum:"text,json" default:"text"`
	LogLevel     slog.Level    `help:"Least level of the log: DEBUG, INFO, WARN or ERROR." default:"INFO"`
}

// pluginFlags are the policy of asking plugins.
type pluginFlags struct {
	Deadline time.Duration `help:"How long one attempt to have a command applied may take." default:"10s"`
	Attempts int64         `help:"How many attempts there are before a handoff fails." default:"3"`
	Backoff  time.Duration `help:"Pause before the second attempt; it doubles with each." default:"1s"`
	Resend   time.Duration `help:"After what silence a plugin is sent the same request again." default:"2s"`
}

// clientsFlags are who handoffd is in the clients' account of an existing NATS with --access.
type clientsFlags struct {
	User     string `help:"With --nats and --access: the user in the clients' account, which asks plugins."`
	Password string `help:"Its password."`
	Creds    string `help:"Its file with user credentials (JWT and seed)." type:"existingfile"`
	NKey     string `name:"nkey" help:"Its file with an NKey seed." type:"existingfile"`
}

// connection returns how to connect as that user, in all else as the server does.
func (f clientsFlags) connection(as natsconn.Options) natsconn.Options {
	as.Token = ""
	as.User, as.Password, as.Creds, as.NKey = f.User, f.Password, f.Creds, f.NKey
	return as
}

// rulesFlags are the amounts of the built-in rules.
type rulesFlags struct {
	ProjectStep    float64 `help:"What project advance adds to the progress." default:"0.1"`
	SalvageFocused float64 `help:"What salvage takes off scarcity or dread." default:"0.1"`
	SalvageGeneral float64 `help:"What salvage takes off both, with the focus general." default:"0.05"`
	MoraleBoost    float64 `help:"What the talk morale-boost adds to hope." default:"0.1"`
	CasualTalk     float64 `help:"What the talk casual adds to hope." default:"0.03"`
}

func (c *serveCommand) config(log io.Writer) (server.Config, error) {
	var console *rcon.Config
	if c.RCONConfig != "" {
		read, err := rcon.ReadConfig(c.RCONConfig, os.LookupEnv)
		if err != nil {
			return server.Config{}, err
		}
		console = &read
	}
	var users *access.Config
	if c.Access != "" {
		read, err := access.ReadFile(c.Access, os.LookupEnv)
		if err != nil {
			return server.Config{}, err
		}
		users = &read
	}
	rules := town.Rules(c.Rules)
	return server.Config{
		Access: users, InsecureListen: c.InsecureListen, Clients: c.Clients.connection(c.Connection),
		Listen: c.Listen, Data: c.Data, Sync: c.Sync, SyncInterval: c.SyncInterval,
		MaxConnections: c.MaxConns,
		NATS:           c.NATS, Connection: c.Connection, WorldFile: c.WorldFile, RCON: console,
		Engine: worldengine.Config{
			World: c.World, Rules: &rules,
			Apply: worldengine.Binding(c.Apply), Plugin: worldengine.PluginPolicy(c.Plugin),
			DedupeRetention: c.DedupeRetention, EventRetention: c.RunEventsRetention, EventLimit: c.RunEventsLimit,
			HistoryPerTown: c.HistoryPerTown, Replicas: c.Replicas, QueueTotal: c.MaxWaiting,
			TenantID: c.TenantID, ProjectID: c.ProjectID, EnvironmentID: c.EnvironmentID,
			Projector: c.Projector, Now: engineClock,
		},
		Service: service.Config{MaxHeld: c.MaxHeld << 20},
		Logger:  newLogger(log, c.LogFormat, c.LogLevel),
	}, nil
}

// engineClock is the clock of the engine, nil for the machine's. Tests set another.
var engineClock func() time.Time

// Bounds of what an operator may let wait. A place reserves 40 bytes from the start.
const (
	mostWaiting = 1_000_000
	mostHeld    = 1 << 20 // MiB
)

// validate refuses what would be taken for "the default" further down, or makes no sense.
func (c *serveCommand) validate() error {
	for flag, value := range map[string]int64{
		"--sync-interval": int64(c.SyncInterval), "--drain-timeout": int64(c.DrainTimeout),
		"--dedupe-retention": int64(c.DedupeRetention), "--runevents-retention": int64(c.RunEventsRetention),
		"--max-connections": int64(c.MaxConns), "--history-per-town": c.HistoryPerTown, "--replicas": int64(c.Replicas),
		"--max-held": c.MaxHeld, "--max-waiting": int64(c.MaxWaiting),
		"--plugin-deadline": int64(c.Plugin.Deadline), "--plugin-attempts": c.Plugin.Attempts,
		"--plugin-backoff": int64(c.Plugin.Backoff), "--plugin-resend": int64(c.Plugin.Resend),
	} {
		if value <= 0 {
			return fmt.Errorf("%w: %s must be above 0", errUsage, flag)
		}
	}
	if c.MaxWaiting > mostWaiting {
		return fmt.Errorf("%w: --max-waiting must be at most %d (requests), not %d", errUsage, mostWaiting, c.MaxWaiting)
	}
	if c.MaxHeld > mostHeld {
		return fmt.Errorf("%w: --max-held must be at most %d (MiB), not %d", errUsage, mostHeld, c.MaxHeld)
	}
	if c.RunEventsLimit < 1 && c.RunEventsLimit != -1 {
		return fmt.Errorf("%w: --runevents-limit must be at least 1, or -1 for no limit", errUsage)
	}
	for flag, retention := range map[string]time.Duration{
		"--dedupe-retention": c.DedupeRetention, "--runevents-retention": c.RunEventsRetention,
	} {
		if retention < time.Second {
			return fmt.Errorf("%w: %s must be at least 1s", errUsage, flag)
		}
	}
	if c.Apply == string(worldengine.ApplyRCON) && c.RCONConfig == "" {
		return fmt.Errorf("%w: --apply rcon needs --rcon-config FILE, which says which console to use and what runs there",
			errUsage)
	}
	if c.NATS != "" && c.Access != "" && c.Clients == (clientsFlags{}) {
		return fmt.Errorf("%w: --nats with --access needs the server's user in the clients' account: --clients-user, …",
			errUsage)
	}
	if err := worldengine.ValidateWorld(c.World); err != nil {
		return fmt.Errorf("%w: --world: %w", errUsage, err)
	}
	if err := town.Rules(c.Rules).Validate(); err != nil {
		return fmt.Errorf("%w: --rules-…: %w", errUsage, err)
	}
	return nil
}

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// gcPercent trades memory for processor time where the operator does not say otherwise with GOGC:
// the live heap is small and every handoff leaves garbage, so a collection at four times the heap
// takes a tenth off the cost of a handoff.
const gcPercent = 300

// Run serves until ctx is done, then finishes what is in hand.
func (c *serveCommand) Run(ctx context.Context, s streams) error {
	if err := c.validate(); err != nil {
		return err
	}
	config, err := c.config(s.log)
	if c.CheckConfig && err != nil {
		return fmt.Errorf("%w: %w", errSettings, err)
	}
	if err != nil {
		return err
	}
	if c.CheckConfig {
		return c.check(s.out, &config)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	srv, err := server.Start(ctx, config)
	if err != nil {
		return err
	}
	c.announce(s.out, srv, &config)
	<-ctx.Done()
	config.Logger.Info("stopping: no more requests are taken, those in hand are finished")
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	if err := srv.Close(stop); err != nil {
		return err
	}
	config.Logger.Info("stopped")
	return nil
}

// announce says what is served and what to try, and last the line that scripts wait for.
func (c *serveCommand) announce(out io.Writer, srv *server.Server, config *server.Config) {
	var b strings.Builder
	url := natsconn.WithoutSecrets(srv.URL())
	c.describe(&b, config, url)
	if c.WorldFile != "" {
		fmt.Fprintf(&b, "towns     %d created from %s\n", srv.Created(), c.WorldFile)
	}
	flags := ""
	if url != "nats://"+server.DefaultListen {
		flags += " --server " + url
	}
	if c.World != worldengine.DefaultWorld {
		flags += " --world " + c.World
	}
	fmt.Fprintf(&b, "try       handoffctl%s town list\n", flags)
	fmt.Fprintf(&b, "ready %s\n", url)
	io.WriteString(out, b.String())
}

// whoApplies says who applies accepted commands: of towns that do not say it themselves, and what else a
// town may say.
func whoApplies(config *server.Config) string {
	console := ""
	if config.RCON != nil {
		console = "the console at " + config.RCON.Address
	}
	text := string(config.Engine.Apply)
	switch config.Engine.Apply {
	case worldengine.ApplyRCON:
		return text + " (" + console + ")"
	case worldengine.ApplyPlugin:
		text += " (asked on " + worldengine.ApplySubject(config.Engine.World, "<town token>") + ")"
	default:
		text += " (the built-in rules)"
	}
	if console != "" {
		text += "; rcon (" + console + ") for towns that say so"
	}
	return text
}
