package handoffd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/cmdline"
	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

//go:generate go test . -run ^TestServe_FlagsAreDocumented$ -rewrite

// serveCommand serves a world until the program is stopped.
type serveCommand struct {
	Server server.Config `embed:""`
	Engine engine.Config `embed:""`
	Worlds worldFlags    `embed:""`

	MinFreeDisk freeSpace `help:"Free space to keep on the disk of --data, a size such as 1GiB. If there is less, requests that would have to be stored get 503 STORAGE_FULL. auto is a fiftieth of the disk, at least 1 MiB and at most 256 MiB." default:"auto" group:"Storage:"`
	HTTP        string    `name:"http" help:"Address of the console over HTTP, HOST:PORT; port 0 picks a free one, off serves none. By default 127.0.0.1:8480, or a free port if that is taken. It has the TLS of the access file. An address that other machines reach requires that TLS or --insecure-listen." placeholder:"HOST:PORT"`

	Access      string       `help:"Access file with the users who may connect, and their rights; see docs/access.md. Without it every client may use every verb, and only a client with operator.nk of the data directory reaches the streams." type:"existingfile"`
	Clients     clientsFlags `embed:"" prefix:"clients-" group:"An existing NATS:"`
	CheckConfig bool         `help:"Check the settings, print the world that would be served or the first error, and end."`

	Bus            string      `help:"Publish each run event into the stream RUNEVENTS too, for durable consumers: jetstream or off. handoffctl watch and event.list do not need it." enum:"off,jetstream" default:"off" group:"Storage:"`
	HistoryPerTown *int64      `help:"Number of commits, and of refused runs, that the log keeps of each town; at least 1000. Keys, results, runs and events are known as long as the log keeps them. A setting of the world, 10000 for a new one." group:"Storage:"`
	MaxHeld        int64       `help:"Limit, in MiB, of the requests that wait or are in hand; at most 1048576. A request that does not fit gets 429: see docs/overload.md." default:"64" group:"Bounds:"`
	Memory         memoryLimit `help:"Soft memory limit of the process: a size such as 2GiB; auto for three quarters of the memory of the machine or of its control group; off for none. The variable GOMEMLIMIT overrides it." default:"auto" group:"Bounds:"`
	Revision       int         `name:"result-revision" help:"Revision of results for requests that name none: 0, the form of the contract, or 1; see docs/contracts.md." enum:"0,1" default:"0" group:"Tenants and contracts:"`
	Rules          town.Rules  `embed:"" prefix:"rules-" group:"Sizes of the built-in rules:"`

	DrainTimeout time.Duration `help:"How long a server that is stopped waits for requests in hand." default:"20s" group:"Bounds:"`
	LogFormat    string        `help:"Format of the log: text or json." enum:"text,json" default:"text" group:"Log:"`
	LogLevel     slog.Level    `help:"Least level of the log: DEBUG, INFO, WARN or ERROR." default:"INFO" group:"Log:"`

	printedState string // the state that was printed last: ready or standby
}

// clientsFlags name the user of handoffd in the clients' account of an existing NATS with --access.
type clientsFlags struct {
	User     string `help:"With --nats and --access: user of handoffd in the clients' account. With it handoffd checks the accounts at its start."`
	Password string `help:"Password of that user."`
	Creds    string `help:"File with the credentials of that user (JWT and seed)." type:"existingfile"`
	NKey     string `name:"nkey" help:"File with the NKey seed of that user." type:"existingfile"`
}

// Bounds of --max-waiting and --max-held. A slot reserves 40 bytes from the start.
const (
	maxWaiting = 1_000_000
	maxHeld    = 1 << 20 // MiB
)

// Validate refuses values that the engine would take for its defaults, and settings that contradict
// each other.
func (c *serveCommand) Validate() error {
	for _, rule := range []struct {
		holds bool
		text  string
	}{
		{c.Server.Embedded.SyncInterval > 0, "--sync-interval must be above 0"},
		{c.DrainTimeout > 0, "--drain-timeout must be above 0"},
		{c.Server.Embedded.MaxConnections > 0, "--max-connections must be above 0"},
		{c.Server.Embedded.MaxConnectionsPerAddress >= 0, "--max-connections-per-address must be at least 0"},
		{validReplicas(c.Engine.Storage.Replicas, c.Server.External.URL), replicasRule},
		{c.Engine.PauseTimeout > 0, "--pause-wait must be above 0"},
		{c.Engine.ApprovalTimeout > 0, "--approval-timeout must be above 0"},
		{c.MaxHeld > 0, "--max-held must be above 0"},
		{c.MaxHeld <= maxHeld,
			fmt.Sprintf("--max-held must be at most %d (MiB), not %d", maxHeld, c.MaxHeld)},
		{c.Engine.Bounds.Total > 0, "--max-waiting must be above 0"},
		{c.Engine.Bounds.Total <= maxWaiting, fmt.Sprintf(
			"--max-waiting must be at most %d (requests), not %d", maxWaiting, c.Engine.Bounds.Total)},
		{c.Engine.Retry.Deadline > 0, "--plugin-deadline must be above 0"},
		{c.Engine.Retry.Attempts > 0, "--plugin-attempts must be above 0"},
		{c.Engine.Retry.Backoff > 0, "--plugin-backoff must be above 0"},
		{c.Engine.Retry.Resend > 0, "--plugin-resend must be above 0"},
		{c.Engine.Outbox.Limit >= 1 || c.Engine.Outbox.Limit == -1,
			fmt.Sprintf("--bus-limit must be at least 1, or -1 for no limit, not %d", c.Engine.Outbox.Limit)},
		{c.Engine.Outbox.Retention >= time.Second,
			fmt.Sprintf("--bus-retention must be at least 1s, not %s", c.Engine.Outbox.Retention)},
		{!c.Engine.Binding.Spec().NeedsConsole || len(c.Worlds.RCONConfig) > 0, "--apply rcon needs --rcon-config " +
			"FILE with the console and the lines to run there"},
		{c.Server.External.WebSocket == "" || c.Server.External.URL != "",
			"--nats-websocket is for --nats: the embedded NATS has its own"},
		{!c.Worlds.several() || !c.Engine.Storage.DiscardHistory, "--discard-history is for one world: give one " +
			"--world, or use handoffctl world settings set"},
		{!c.Server.Open || c.Server.External.URL == "" && c.Access == "",
			"--open is for an embedded NATS without --access: leave it out"},
		{c.Server.External.URL == "" || c.Access == "" || c.Clients != clientsFlags{}, "--nats with --access " +
			"needs the server's user in the clients' account: --clients-user, --clients-creds or " +
			"--clients-nkey"},
	} {
		if !rule.holds {
			return errors.New(rule.text)
		}
	}
	if c.HistoryPerTown != nil && *c.HistoryPerTown < worldsettings.MinHistoryPerTown {
		return fmt.Errorf("--history-per-town must be at least %d, not %d", worldsettings.MinHistoryPerTown,
			*c.HistoryPerTown)
	}
	return nil
}

const replicasRule = "--replicas must be above 0, and above 1 only with --nats"

func validReplicas(replicas int, nats string) bool {
	return replicas == 1 || replicas > 1 && nats != ""
}

func validateWorld(world string) error {
	if err := wire.ValidateWorld(world); err != nil {
		return fmt.Errorf("--world: %w", err)
	}
	return nil
}

// engineClock is the clock of the engine, nil for the machine's. Tests set another.
var engineClock func() time.Time

// config returns the configuration of the server. It reads the files of --access and --rcon-config.
func (c *serveCommand) config(logger *slog.Logger) (config server.Config, err error) {
	config = c.Server
	config.Embedded.MinFreeDisk, config.External.Clients, config.Logger = int64(c.MinFreeDisk), config.External.Connection, logger
	config.HTTP.Listen, config.HTTP.OrFree = cmp.Or(c.HTTP, server.DefaultHTTP), c.HTTP == ""
	if c.HTTP == "off" {
		config.HTTP.Listen = ""
	}
	config.Engine = c.Engine
	config.Engine.Rules, config.Engine.Outbox.Enabled, config.Engine.Now = &c.Rules, c.Bus == "jetstream", engineClock
	config.Service = service.Config{
		Version: cmdline.Version(), MaxHeld: c.MaxHeld << 20, Revision: handoff.Revision(c.Revision),
	}
	if c.HistoryPerTown != nil {
		config.Engine.HistoryPerTown = *c.HistoryPerTown
	}
	user := &config.External.Clients // all else is as in config.Connection
	user.User, user.Password, user.Token = c.Clients.User, c.Clients.Password, ""
	user.Creds, user.NKey = c.Clients.Creds, c.Clients.NKey
	if err := c.Worlds.configure(&config); err != nil {
		return config, err
	}
	if c.Access != "" {
		users, err := access.ReadFile(c.Access, os.LookupEnv)
		if err != nil {
			return config, err
		}
		config.Access = &users
	}
	return config, nil
}

// jsonLog is the --log-format that writes each entry as a line of JSON.
const jsonLog = "json"

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == jsonLog {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Run serves until ctx is done, or checks the settings.
func (c *serveCommand) Run(ctx context.Context, s outputs, line *kong.Context) error {
	logger := newLogger(s.log, c.LogFormat, c.LogLevel)
	for _, name := range unknownVariables(os.Environ(), line.Model) {
		logger.Warn("an environment variable is of no flag of handoffd: it is misspelt, or of "+
			"another version", "variable", name)
	}
	if c.Server.External.URL != "" {
		warnEmbedded(logger, line, "Worlds below --data, if there are any, are not served: back them up with handoffctl "+
			"backup while a server without --nats serves them, then restore them with handoffd restore --nats")
	}
	config, err := c.config(logger)
	if c.CheckConfig {
		if err == nil {
			err = c.check(ctx, s.out, config)
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", errSettings, err)
		}
		return err
	}
	if err != nil {
		return err
	}
	boundHeapGrowth()
	limitMemory(int64(c.Memory), logger)
	return c.serve(ctx, s.out, config)
}

// serve serves until ctx is done, then finishes the unanswered requests.
func (c *serveCommand) serve(ctx context.Context, out io.Writer, config server.Config) error {
	logger := config.Logger
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP) // even without an access file: else it ends the process
	defer signal.Stop(reload)
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may go away; the world is served on
	srv, err := server.Start(ctx, config)
	if err != nil && ctx.Err() != nil {
		logger.Info("stopped before it served", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	c.printState(ctx, out, srv, config)
	notify(notifyReady, logger)
	go watchdog(ctx, logger)
	pauses := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for ctx.Err() == nil {
		var failed <-chan struct{} // never, if the disk is another process's
		if room := srv.Disk(); room != nil {
			failed = room.Failed()
		}
		select {
		case <-ctx.Done():
		case <-reload:
			c.reloadAccess(srv, &config)
		case <-srv.Changed():
			c.printState(ctx, out, srv, config)
		case <-failed:
			if srv, err = c.restart(ctx, srv, config, pauses.Next()); srv == nil {
				return err
			}
		}
	}
	notify(notifyStopping, logger)
	logger.Info("stopping: no more requests are taken, those in hand are finished")
	if err := c.stop(ctx, srv); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

func (c *serveCommand) stop(ctx context.Context, srv *server.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	return srv.Close(ctx)
}

// pollInterval is the pause between two looks at a disk that is full.
const pollInterval = 250 * time.Millisecond

// restart replaces a server whose NATS failed to write to the disk. After a pause, once there is
// room, it ends the server and starts another one on the same ports. Until then the server refuses
// to store. If ctx is done first, restart returns the server if that still runs, else nil.
func (c *serveCommand) restart(
	ctx context.Context, srv *server.Server, config server.Config, pause time.Duration,
) (*server.Server, error) {
	room := srv.Disk()
	config.Logger.Error("a write to the disk failed, so nothing can be stored: the server starts "+
		"again when there is room",
		"data", config.Embedded.Data, "error", room.Check(), "pause", pause)
	err := backoff.Sleep(ctx, pause)
	for err == nil && room.Full() {
		err = backoff.Sleep(ctx, pollInterval)
	}
	if err != nil {
		return srv, nil
	}
	config.Embedded.Listen = samePort(config.Embedded.Listen, srv.URL())
	if config.HTTP.Listen != "" {
		config.HTTP.Listen = samePort(config.HTTP.Listen, srv.HTTP())
	}
	// The given settings are the world's by now, and an operator may have changed them since.
	config.Engine.Settings, config.Engine.Storage.DiscardHistory = worldsettings.Settings{}, false
	if err := c.stop(ctx, srv); err != nil {
		config.Logger.Warn("the server that could not store did not stop cleanly", "error", err)
	}
	for ctx.Err() == nil {
		srv, err := server.Start(ctx, config)
		if err == nil {
			config.Logger.Info("serving again", "url", srv.URL())
			return srv, nil
		}
		if ctx.Err() == nil && !errors.Is(err, diskspace.ErrFull) {
			return nil, fmt.Errorf("the server cannot start again after a write to the disk "+
				"failed: %w", err)
		}
		_ = backoff.Sleep(ctx, pollInterval) // the disk was filled again meanwhile
	}
	return nil, nil
}

// samePort returns the address listen, HOST:PORT, with the port of served, the URL of a server that
// has listened there.
func samePort(listen, served string) string {
	host, _, _ := net.SplitHostPort(listen) // the server has read both
	at, _ := url.Parse(served)
	return net.JoinHostPort(host, at.Port())
}
