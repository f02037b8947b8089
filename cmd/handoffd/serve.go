package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"worldengine/cmd/internal/version"
	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/rcon"
	"worldengine/worldengine/server"
	"worldengine/worldengine/service"
	"worldengine/worldengine/town"
	"worldengine/worldengine/webhook"
	"worldengine/worldengine/wire"
)

//go:generate go test . -run ^TestServe_FlagsAreDocumented$ -rewrite

// serveCommand serves a world until the program is stopped.
type serveCommand struct {
	Listen       string           `help:"Where the embedded NATS listens, HOST:PORT; port 0 picks a free one." default:"127.0.0.1:4222"`
	Data         string           `help:"Directory of the embedded NATS, which one server uses at a time." default:"./handoffd-data" type:"path"`
	World        string           `help:"Name of the world." default:"main"`
	WorldFile    string           `help:"JSON array of snapshot.v1, at most 64 MiB; its towns are created if they do not exist yet." type:"existingfile"`
	Sync         server.Sync      `help:"When a commit reaches the disk: before it is answered (always), or every --sync-interval (interval: faster, but a loss of power may cost the last commits)." enum:"always,interval" default:"always" group:"Storage:"`
	MinFreeDisk  string           `help:"How much of the disk of --data stays free, a size such as 1GiB: requests that would have to be stored when there is less get 503 STORAGE_FULL. auto for a fiftieth of the disk, at least 1 MiB and at most 256 MiB." default:"auto" group:"Storage:"`
	SyncInterval time.Duration    `help:"How often commits reach the disk with --sync=interval." default:"2s" group:"Storage:"`
	MaxConns     int              `name:"max-connections" help:"How many connections of clients the embedded NATS takes; over HTTP as many requests, and as many WebSockets." default:"1024" group:"Bounds:"`
	MaxOfAddress int              `name:"max-connections-per-address" help:"How many of them may be of one address (for IPv6 one /64 network); a further one is refused as Authorization Violation, and the log has a line. 0 for a quarter of them, and for all of them on loopback. Over HTTP it bounds connections too, to 16 at least, since a browser opens several." default:"0" group:"Bounds:"`
	Apply        string           `help:"Who applies the commands of towns that have no binding of their own: the built-in rules (local), the plugin of the game server that hosts the town (plugin), or commands on the console of a game server without one (rcon). A setting of the world, local for a new one." enum:",local,plugin,rcon" default:""`
	Approval     string           `name:"require-approval" help:"Which types of proposals a person has to approve before they are carried out, in towns that do not say it themselves: TYPE,… such as PROJECT_ADVANCE, or none; see docs/operators.md. A setting of the world, none for a new one." placeholder:"TYPE,…"`
	RCONConfig   string           `name:"rcon-config" help:"Which console applies the commands of towns bound to rcon, and what runs there: see docs/rcon.md." type:"existingfile"`
	Plugin       pluginFlags      `embed:"" prefix:"plugin-" group:"A game:"`
	NATS         string           `name:"nats" help:"URL of an existing NATS with JetStream to join, instead of embedding one." placeholder:"URL" group:"An existing NATS:"`
	Connection   natsconn.Options `embed:"" group:"An existing NATS:"`
	HTTP         string           `name:"http" help:"Where the console is served over HTTP, HOST:PORT; port 0 picks a free one, off serves none. By default 127.0.0.1:8480, and a free port if that one is taken. It has the TLS of the access file, and listens beyond this machine only with that or --insecure-listen." placeholder:"HOST:PORT"`
	WebSocket    string           `name:"nats-websocket" help:"With --nats: where that NATS takes the WebSockets of the console, ws://HOST:PORT or wss://HOST:PORT." placeholder:"URL" group:"An existing NATS:"`
	Origins      []string         `name:"websocket-origin" help:"Origins of other pages whose agents may connect to /nats of --http, such as https://agents.example; the console's own may anyway." placeholder:"ORIGIN"`

	Access         string       `help:"Access file: which users may connect, and their rights; see docs/access.md. Without it every client may ask every verb, and only a client with operator.nk of the data directory reaches the streams." type:"existingfile"`
	Open           bool         `help:"Without --access: let every client do everything, also write to the streams and so to the log."`
	InsecureListen bool         `help:"Without --access, or without its TLS: allow --listen and --http on addresses that other machines reach."`
	Clients        clientsFlags `embed:"" prefix:"clients-" group:"An existing NATS:"`
	CheckConfig    bool         `help:"Check the settings, print the world that would be served or the first error, and end."`

	Bus             string        `help:"Publish each run event into the stream RUNEVENTS too, for durable consumers: jetstream or off. handoffctl watch and event.list need none." enum:"off,jetstream" default:"off" group:"Storage:"`
	BusRetention    time.Duration `help:"How long the bus keeps run events." default:"720h" group:"Storage:"`
	BusLimit        int64         `help:"How many run events the bus keeps at most; the oldest go first. -1 for no limit." default:"10000000" group:"Storage:"`
	HistoryPerTown  *int64        `help:"How many commits, and how many refused runs, the log keeps of each town; at least 1000. Keys, results, runs and events are known as long as the log keeps them. A setting of the world, 10000 for a new one." group:"Storage:"`
	Compress        string        `help:"Which streams NATS compresses, if they have one replica, once a block of them is full: the bus (events), or the log too (all), which takes less than half of the disk; with all, one damaged bit then destroys a block with the last records of many towns, not one message, and only a backup brings them back. A setting of the world, events for a new one." enum:",events,all" default:"" group:"Storage:"`
	DiscardHistory  bool          `help:"Store the settings of the world that are given here as the world's, even if NATS must then delete commits beyond their limit, which only a backup brings back. Without it a server with such settings does not start, and says how many messages they would delete." group:"Storage:"`
	Replicas        int           `help:"How many servers of a NATS cluster keep each stream." default:"1" group:"An existing NATS:"`
	MaxWaiting      int           `help:"How many requests that change towns may wait or be in hand; at most 1000000. A request that does not fit gets 429: see docs/overload.md." default:"2048" group:"Bounds:"`
	PauseWait       time.Duration `help:"How long a handoff waits for the end of a pause before its client gets 503 TOWN_PAUSED or WORLD_PAUSED; for a game that is away it waits fifteen times as long (30 s) before 503 PLUGIN_ABSENT. Keep it shorter than the patience of clients." default:"2s" group:"A game:"`
	ApprovalTimeout time.Duration `help:"How long a proposal waits for a person's approval, and an approval for its handoff." default:"24h" group:"A game:"`
	MaxHeld         int64         `help:"How many MiB the requests that wait or are in hand may take; at most 1048576. A request that does not fit gets 429: see docs/overload.md." default:"64" group:"Bounds:"`
	Memory          string        `help:"Soft memory limit of the process: a size such as 2GiB; auto for three quarters of the memory of the machine or of its control group; off for none. The variable GOMEMLIMIT wins." default:"auto" group:"Bounds:"`
	TenantID        string        `help:"tenantId of the run events." default:"default" group:"Tenants and contracts:"`
	ProjectID       string        `help:"projectId of the run events; by default the world's name." group:"Tenants and contracts:"`
	EnvironmentID   string        `help:"environmentId of the run events." default:"local" group:"Tenants and contracts:"`
	Projector       bool          `help:"Project the runs that others append events to, raise alerts about invalid events, and report in the statistics how far that is behind." default:"true" negatable:"" group:"Tenants and contracts:"`
	Validate        bool          `name:"validate-transitions" help:"Refuse an event of run.append that is no transition of its run or step, with 409 INVALID_TRANSITION. Without it such an event is stored, and projections ignore it and mark the run INCONSISTENT." group:"Tenants and contracts:"`
	Revision        int           `name:"result-revision" help:"Revision of the result in answers to requests that ask for none: 0, the form of the contract, or 1; see docs/contracts.md." enum:"0,1" default:"0" group:"Tenants and contracts:"`
	Rules           town.Rules    `embed:"" prefix:"rules-" group:"Sizes of the built-in rules:"`

	Webhook       []string       `help:"URL to which each alert, and each proposal that begins to wait for approval, is posted as JSON; repeatable. It may be a secret: prefer the variable HANDOFFD_WEBHOOK. See docs/operators.md." placeholder:"URL"`
	WebhookFormat webhook.Format `help:"JSON that the webhooks read." enum:"json,discord,slack" default:"json"`

	DrainTimeout time.Duration `help:"How long the server waits for requests in hand when it is stopped." default:"20s" group:"Bounds:"`
	LogFormat    string        `help:"Format of the log: text or json." enum:"text,json" default:"text" group:"Log:"`
	LogLevel     slog.Level    `help:"Least level of the log: DEBUG, INFO, WARN or ERROR." default:"INFO" group:"Log:"`

	reload <-chan os.Signal // the access file is to be read again
}

// pluginFlags are the policy of asking plugins.
type pluginFlags struct {
	Deadline time.Duration `help:"How long one attempt to apply a command may take." default:"10s"`
	Attempts int64         `help:"How many attempts to apply a command there are before its handoff fails." default:"3"`
	Backoff  time.Duration `help:"Pause before the second attempt; it doubles with each." default:"1s"`
	Resend   time.Duration `help:"After how long without an answer the engine sends a plugin the same request again." default:"2s"`
	Absent   apply.Absent  `help:"Policy for a command while its town has no plugin, or no console that can be reached: it waits until one is there (wait), or fails when its attempts are used up (fail)." enum:"wait,fail" default:"wait"`
}

// clientsFlags name the user of handoffd in the clients' account of an existing NATS with --access.
type clientsFlags struct {
	User     string `help:"With --nats and --access: the server's user in the clients' account, with which it checks the accounts at the start."`
	Password string `help:"Password of that user."`
	Creds    string `help:"File with the credentials of that user (JWT and seed)." type:"existingfile"`
	NKey     string `name:"nkey" help:"File with the NKey seed of that user." type:"existingfile"`
}

// connection returns how to connect as that user, in all else as the server does.
func (f clientsFlags) connection(as natsconn.Options) natsconn.Options {
	as.Token = ""
	as.User, as.Password, as.Creds, as.NKey = f.User, f.Password, f.Creds, f.NKey
	return as
}

// config returns the configuration of the server. It reads the files of --access and --rcon-config.
func (c *serveCommand) config(log io.Writer) (server.Config, error) {
	console, err := readIfGiven(c.RCONConfig, rcon.ReadConfig)
	if err != nil {
		return server.Config{}, err
	}
	users, err := readIfGiven(c.Access, access.ReadFile)
	if err != nil {
		return server.Config{}, err
	}
	free, err := parseFreeDisk(c.MinFreeDisk)
	if err != nil {
		return server.Config{}, err
	}
	return server.Config{
		Access: users, InsecureListen: c.InsecureListen, Open: c.Open,
		Clients: c.Clients.connection(c.Connection),
		Listen:  c.Listen, Data: c.Data, Sync: c.Sync, SyncInterval: c.SyncInterval,
		MinFreeDisk: free, MaxConnections: c.MaxConns, MaxConnectionsPerAddress: c.MaxOfAddress,
		HTTP: c.http(), HTTPOrFree: c.HTTP == "", NATSWebSocket: c.WebSocket,
		WebSocketOrigins: c.Origins,
		NATS:             c.NATS, Connection: c.Connection, WorldFile: c.WorldFile, RCON: console,
		Webhook: c.webhook(),
		Engine: worldengine.Config{
			World: c.World, Rules: &c.Rules,
			RequireApproval: c.Approval, ApprovalTimeout: c.ApprovalTimeout,
			Compress: commitlog.Compression(c.Compress),
			Apply:    apply.Binding(c.Apply), Plugin: apply.Policy(c.Plugin),
			Bus: c.Bus == "jetstream", BusRetention: c.BusRetention, BusLimit: c.BusLimit,
			HistoryPerTown: given(c.HistoryPerTown),
			DiscardHistory: c.DiscardHistory, Replicas: c.Replicas, QueueTotal: c.MaxWaiting,
			PauseWait: c.PauseWait,
			TenantID:  c.TenantID, ProjectID: c.ProjectID, EnvironmentID: c.EnvironmentID,
			Projector: c.Projector, ValidateTransitions: c.Validate, Now: engineClock,
		},
		Service: service.Config{Version: version.String(), MaxHeld: c.MaxHeld << 20,
			Revision: handoff.Revision(c.Revision)},
		Logger: newLogger(log, c.LogFormat, c.LogLevel),
	}, nil
}

// readIfGiven reads the file of a flag; nil if there is none.
func readIfGiven[Config any](
	file string, read func(string, func(string) (string, bool)) (Config, error),
) (*Config, error) {
	if file == "" {
		return nil, nil
	}
	config, err := read(file, os.LookupEnv)
	return &config, err
}

// given returns the value of a flag, and 0 if it is not given.
func given(flag *int64) int64 {
	if flag == nil {
		return 0
	}
	return *flag
}

func (c *serveCommand) webhook() webhook.Config {
	return webhook.Config{URLs: c.Webhook, Format: c.WebhookFormat}
}

// http returns the address of the console; empty if it is off.
func (c *serveCommand) http() string {
	if c.HTTP == "off" {
		return ""
	}
	return cmp.Or(c.HTTP, server.DefaultHTTP)
}

// engineClock is the clock of the engine, nil for the machine's. Tests set another.
var engineClock func() time.Time

// Bounds of --max-waiting and --max-held. A slot reserves 40 bytes from the start.
const (
	mostWaiting = 1_000_000
	mostHeld    = 1 << 20 // MiB
)

// validate refuses values that the engine would take for "the default", and settings that
// contradict each other.
func (c *serveCommand) validate() error {
	for _, above0 := range []struct {
		flag  string
		value int64
	}{
		{"--sync-interval", int64(c.SyncInterval)}, {"--drain-timeout", int64(c.DrainTimeout)},
		{"--max-connections", int64(c.MaxConns)},
		{"--replicas", int64(c.Replicas)},
		{"--pause-wait", int64(c.PauseWait)}, {"--approval-timeout", int64(c.ApprovalTimeout)},
		{"--max-held", c.MaxHeld}, {"--max-waiting", int64(c.MaxWaiting)},
		{"--plugin-deadline", int64(c.Plugin.Deadline)}, {"--plugin-attempts", c.Plugin.Attempts},
		{"--plugin-backoff", int64(c.Plugin.Backoff)}, {"--plugin-resend", int64(c.Plugin.Resend)},
	} {
		if above0.value <= 0 {
			return fmt.Errorf("%w: %s must be above 0", errUsage, above0.flag)
		}
	}
	history := given(c.HistoryPerTown)
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{c.BusLimit < 1 && c.BusLimit != -1,
			fmt.Sprintf("--bus-limit must be at least 1, or -1 for no limit, not %d", c.BusLimit)},
		{c.BusRetention < time.Second,
			fmt.Sprintf("--bus-retention must be at least 1s, not %s", c.BusRetention)},
		{c.HistoryPerTown != nil && history < wire.LeastHistoryPerTown,
			fmt.Sprintf("--history-per-town must be at least %d, not %d", wire.LeastHistoryPerTown,
				history)},
		{c.MaxOfAddress < 0, "--max-connections-per-address must be at least 0"},
		{c.MaxWaiting > mostWaiting, fmt.Sprintf(
			"--max-waiting must be at most %d (requests), not %d", mostWaiting, c.MaxWaiting)},
		{c.MaxHeld > mostHeld,
			fmt.Sprintf("--max-held must be at most %d (MiB), not %d", mostHeld, c.MaxHeld)},
		{c.Apply == string(apply.RCON) && c.RCONConfig == "", "--apply rcon needs --rcon-config " +
			"FILE, which says which console to use and what runs there"},
		{c.WebSocket != "" && c.NATS == "",
			"--nats-websocket is for --nats: the embedded NATS has its own"},
		{c.Open && (c.NATS != "" || c.Access != ""),
			"--open is for an embedded NATS without --access: leave it out"},
		{c.NATS != "" && c.Access != "" && c.Clients == (clientsFlags{}), "--nats with --access " +
			"needs the server's user in the clients' account: --clients-user, --clients-creds or " +
			"--clients-nkey"},
	} {
		if rule.broken {
			return fmt.Errorf("%w: %s", errUsage, rule.text)
		}
	}
	if _, err := parseMemory(c.Memory); err != nil {
		return err
	}
	if _, err := parseFreeDisk(c.MinFreeDisk); err != nil {
		return err
	}
	hooks := c.webhook()
	if err := hooks.Validate(); err != nil {
		return fmt.Errorf("%w: --webhook: %w", errUsage, err)
	}
	if err := wire.ValidateWorld(c.World); err != nil {
		return fmt.Errorf("%w: --world: %w", errUsage, err)
	}
	return nil
}

// jsonLog is the --log-format of a line of JSON each.
const jsonLog = "json"

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == jsonLog {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Run serves until ctx is done, then finishes the requests in hand.
func (c *serveCommand) Run(ctx context.Context, s streams, model *kong.Application) error {
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
	for _, name := range unknownVariables(os.Environ(), model) {
		config.Logger.Warn("an environment variable is of no flag of handoffd: it is misspelt, "+
			"or of another version", "variable", name)
	}
	if c.CheckConfig {
		return c.check(ctx, s.out, &config)
	}
	collectGarbage(ctx)
	if err := limitMemory(c.Memory, config.Logger); err != nil {
		return err
	}
	defer c.onHangup()()
	srv, err := server.Start(ctx, config)
	if err != nil {
		return err
	}
	c.announce(ctx, s.out, srv, config)
	c.report(notifyReady, config.Logger)
	go watchdog(ctx, func(err error) {
		config.Logger.Warn("the supervisor does not hear that this process lives", "error", err)
	})
	pauses := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for c.awaitFailure(ctx, s.out, srv, &config, &pauses) {
		if srv, err = c.startAgain(ctx, srv, config); err != nil {
			return err
		}
		if srv == nil { // stopped while it waited for room
			return nil
		}
	}
	c.report(notifyStopping, config.Logger)
	config.Logger.Info("stopping: no more requests are taken, those in hand are finished")
	if err := c.stop(ctx, srv); err != nil {
		return err
	}
	config.Logger.Info("stopped")
	return nil
}

// report reports a state to the supervisor of the process.
func (c *serveCommand) report(state string, logger *slog.Logger) {
	if err := notify(state); err != nil {
		logger.Warn("the supervisor cannot be reached", "state", state, "error", err)
	}
}

func (c *serveCommand) stop(ctx context.Context, srv *server.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	return srv.Close(ctx)
}
