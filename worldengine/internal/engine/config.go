package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/worldfile"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/internal/store/sidestream"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// Config configures an engine. The zero value of every member means its default, which stands after
// the semicolon or in its tag. Members with help are flags of handoffd, which validates them.
type Config struct {
	World string `kong:"-"`
	// Rules are the amounts of the built-in rules; nil for town.DefaultRules.
	Rules *town.Rules `kong:"-"`
	// Settings are the settings of the world; apply.RCON requires RCON. If a setting is not given,
	// the stored value counts; in a new world, the value of worldsettings.Default. Open refuses a
	// value that differs from the stored one, unless Storage.DiscardHistory is set.
	worldsettings.Settings
	// PluginConn is the connection over which plugins are asked, if they are in another NATS account;
	// nil for the engine's connection.
	PluginConn *nats.Conn `kong:"-"`
	// Retry is the policy of asking plugins and consoles to apply commands.
	Retry apply.RetryPolicy `embed:"" prefix:"plugin-" group:"A game:"`
	// RCON applies the commands of towns that are bound to it; nil if none may be.
	RCON apply.Console `kong:"-"`
	// ApprovalTimeout is at least 1 s.
	ApprovalTimeout time.Duration `help:"How long a proposal waits for a person's approval, and an approval for its handoff." default:"24h" group:"A game:"`
	// PauseTimeout is how long a handoff waits for the end of a pause, from its arrival, before it
	// gets a WaitError; 2 s. Keep it shorter than the patience of clients. If a game is absent, a
	// handoff waits fifteen times as long.
	PauseTimeout time.Duration `name:"pause-wait" help:"How long a handoff waits for the end of a pause before its client gets 503 TOWN_PAUSED or WORLD_PAUSED. For a game that is away it waits fifteen times as long (30 s) before 503 PLUGIN_ABSENT. Keep it shorter than the patience of clients." default:"2s" group:"A game:"`

	Storage StorageConfig `embed:""`
	Outbox  OutboxConfig  `embed:"" prefix:"bus-"`
	Bounds  Bounds        `embed:""`
	Runs    RunsConfig    `embed:""`

	// HasSubscribers reports whether anybody subscribes to a subject of live messages; nil publishes
	// every message.
	HasSubscribers func(subject string) bool `kong:"-"`
	// Now is the clock of run events and of the times of attempts; time.Now. NewID draws a UUID v4
	// that runevents.IsID accepts; uuid.NewString. Without a valid id no handoff is judged. No
	// result contains their values.
	Now   func() time.Time `kong:"-"`
	NewID func() string    `kong:"-"`
	// Metrics counts commits and attempts; nil for none.
	Metrics Metrics `kong:"-"`
	// Notifier learns of alerts and of proposals that wait for a person; nil for none.
	Notifier Notifier `kong:"-"`
	// AlertBacklog keeps alerts that could not be stored for the next engine of the process; nil for
	// none.
	AlertBacklog *alerts.Backlog `kong:"-"`
	// HasLease reports whether this server still has the writer's lease; nil if the world has no
	// other servers. It must be quick: a server that was suspended has to know at once.
	HasLease func() bool `kong:"-"`
	// Dials returns how often the engine's connections were dialled. It grows before anything is
	// sent over a new connection, which may lead to another log. If it is nil, each commit asks the
	// connections and waits for their locks, which takes 8 % more processor time a handoff.
	Dials func() uint64 `kong:"-"`
	// Logger gets warnings and errors; slog.Default.
	Logger *slog.Logger `kong:"-"`

	// policy is the parsed RequireApproval.
	policy approval.Policy
	// jitter returns a random duration d with 0 <= d < below. Only pauses depend on it.
	jitter func(below time.Duration) time.Duration
}

// StorageConfig says where and how the log and its index are kept.
type StorageConfig struct {
	// IndexDir is the directory of the index, a cache; "" keeps the index in memory alone.
	IndexDir string `kong:"-"`
	// Index is an open index that follows the world's log already. Close leaves it open. If it is
	// nil, Open opens one and Close closes it.
	Index *samples.SampledIndex `kong:"-"`
	// Disk is the room on the log's disk, checked before each commit; nil if only NATS knows it.
	Disk           *diskspace.Watch `kong:"-"`
	DiscardHistory bool             `help:"Store the settings of the world that are given here, even if NATS must then delete commits beyond their limit, which only a backup brings back. Without it a server with such settings does not start, and prints how many messages they would delete." group:"Storage:"`
	Replicas       int              `help:"Number of servers of a NATS cluster that keep each stream." default:"1" group:"An existing NATS:"`
	// GroupCommits stores together the commits that wait for the disk; false. It suits a world of
	// one NATS server, which writes each message to the disk before it answers.
	GroupCommits bool `kong:"-"`
	// AppendedRetention is how long the log keeps events that others append; alerts.Retention.
	AppendedRetention time.Duration `kong:"-"`
}

// OutboxConfig configures the bus.
type OutboxConfig struct {
	// Enabled publishes the run events into the stream RUNEVENTS too, for durable consumers; false.
	Enabled bool `kong:"-"`
	// Retention is at least 1 s.
	Retention time.Duration `help:"How long the bus keeps run events." default:"720h" group:"Storage:"`
	Limit     int64         `help:"Number of run events that the bus keeps; the oldest go first. -1 for no limit." default:"10000000" group:"Storage:"`
	// Attempts is how often the bus may refuse a message because of the message itself, before the
	// message becomes a dead letter; 8.
	Attempts int `kong:"-"`
}

// Bounds bound the requests that wait or are in hand.
type Bounds struct {
	// Pool has the workers, which engines of several worlds share, and bounds their requests in hand
	// together; nil for a pool of the engine's own, of Workers and Total.
	Pool *queue.Pool `kong:"-"`
	// Workers is how many towns are worked on at once; 256.
	Workers int `kong:"-"`
	// PerTown is how many requests may wait for one town; 256.
	PerTown int `kong:"-"`
	// Total is how many requests may be in hand altogether; 2,048. One town alone can fill PerTown
	// only if Total is at least twice as large.
	Total int `name:"max-waiting" help:"Limit of requests that change towns and that wait or are in hand; at most 1000000. A further one gets 429: see docs/overload.md." default:"2048" group:"Bounds:"`
}

// RunsConfig has the owner of runs, and what happens to the events that others append to them.
type RunsConfig struct {
	// ValidateTransitions makes Appends().Append refuse an event that a projector would ignore, with
	// INVALID_TRANSITION. If false, such an event is stored and projectors ignore it.
	ValidateTransitions bool `name:"validate-transitions" help:"Refuse an event of run.append that is no valid transition of its run or step, with 409 INVALID_TRANSITION. Without it such an event is stored, and projections ignore it and mark the run INCONSISTENT." group:"Tenants and contracts:"`
	// Projector projects the events that others append: alerts then report invalid transitions,
	// and Stats how far projections are behind; false. handoffd sets it.
	Projector     bool   `help:"Project the runs that others append events to, raise alerts about invalid events, and report in the statistics how far the projection is behind." default:"true" negatable:"" group:"Tenants and contracts:"`
	TenantID      string `help:"tenantId of the run events." default:"default" group:"Tenants and contracts:"`
	ProjectID     string `help:"projectId of the run events; by default the world's name." group:"Tenants and contracts:"`
	EnvironmentID string `help:"environmentId of the run events." default:"local" group:"Tenants and contracts:"`
}

// Metrics counts the work of an engine. Its methods must not block and must be safe for concurrent
// use.
type Metrics interface {
	game.Metrics
	// AppendTried counts one try to append to the log, and its duration.
	AppendTried(took time.Duration)
}

// Notifier forwards news to people. Its methods must not block and must be safe for concurrent use.
type Notifier interface {
	// Alert gets every alert, as the server's log does.
	Alert(alert runevents.Alert)
	// ApprovalRequested gets each proposal that begins to wait for a person's approval, once the wait is stored.
	ApprovalRequested(townID string, asked *approval.Request)
}

// Defaults of Bounds.
const (
	DefaultWorkers = 256
	DefaultPerTown = 256
	DefaultTotal   = 2048
)

// NewPool returns a pool of Workers and Total for the engines of several worlds.
func (c Config) NewPool() *queue.Pool {
	return queue.NewPool(cmp.Or(c.Bounds.Workers, DefaultWorkers), cmp.Or(c.Bounds.Total, DefaultTotal))
}

func (c Config) withDefaults() (Config, error) {
	c.World = cmp.Or(c.World, wire.DefaultWorld)
	c.Retry = c.Retry.WithDefaults()
	var err error
	if c.Settings, err = c.Settings.WithDefaults(worldsettings.Default()).Normalized(); err != nil {
		return c, err
	}
	c.policy = c.Settings.Policy()
	c.ApprovalTimeout = cmp.Or(c.ApprovalTimeout, approval.DefaultTimeout)
	c.Storage.Replicas = cmp.Or(c.Storage.Replicas, 1)
	c.Bounds.Workers = cmp.Or(c.Bounds.Workers, DefaultWorkers)
	c.Bounds.PerTown = cmp.Or(c.Bounds.PerTown, DefaultPerTown)
	c.Bounds.Total = cmp.Or(c.Bounds.Total, DefaultTotal)
	c.PauseTimeout = cmp.Or(c.PauseTimeout, 2*time.Second)
	c.Outbox.Retention = cmp.Or(c.Outbox.Retention, 30*24*time.Hour)
	c.Outbox.Limit = cmp.Or(c.Outbox.Limit, 10_000_000)
	c.Storage.AppendedRetention = cmp.Or(c.Storage.AppendedRetention, alerts.Retention)
	c.Runs.TenantID = cmp.Or(c.Runs.TenantID, "default")
	c.Runs.ProjectID = cmp.Or(c.Runs.ProjectID, c.World)
	c.Runs.EnvironmentID = cmp.Or(c.Runs.EnvironmentID, "local")
	c.Rules = cmp.Or(c.Rules, new(town.DefaultRules()))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = uuid.NewString
	}
	if c.HasLease == nil {
		c.HasLease = func() bool { return true }
	}
	if c.jitter == nil {
		c.jitter = rand.N[time.Duration]
	}
	return c, c.validate()
}

// alerts returns the configuration of the alerts of a world whose log has an identity.
func (c *Config) alerts(identity string) alerts.Config {
	config := alerts.Config{
		Log: sidestream.Log{World: c.World, Identity: identity}, Replicas: c.Storage.Replicas,
		TenantID: c.Runs.TenantID, ProjectID: c.Runs.ProjectID,
		EnvironmentID: c.Runs.EnvironmentID, Logger: c.Logger, Now: c.Now, Backlog: c.AlertBacklog,
	}
	if c.Notifier != nil {
		config.Notify = c.Notifier.Alert
	}
	return config
}

func (c *Config) validate() error {
	err := errors.Join(wire.ValidateWorld(c.World), c.Rules.Validate(), c.Binding.Validate(),
		c.Compress.Validate())
	if c.lacksConsole(c.Binding) {
		err = errors.Join(err, fmt.Errorf("engine: the setting apply is %[1]s, which requires "+
			"an RCON console: give --rcon-config FILE, or another --apply, with --discard-history if "+
			"%[1]s is the world's", c.Binding))
	}
	if c.ApprovalTimeout < time.Second {
		err = errors.Join(err, errors.New("engine: a proposal waits at least 1 s for its approval"))
	}
	return err
}

// absencePerPause is how many times as long a request waits for a game that is absent as for the end of a
// pause. A game that restarts is back after some ten seconds; a pause lasts as long as a person likes.
const absencePerPause = 15

func (c *Config) waitLimits() waiting.Limits {
	return waiting.Limits{Pause: c.PauseTimeout, Absence: absencePerPause * c.PauseTimeout}
}

// newRun returns a run with a new id.
func (c *Config) newRun(planID, planVersion string) (runevents.Identity, error) {
	run := runevents.Identity{
		RunID: c.NewID(), TenantID: c.Runs.TenantID, ProjectID: c.Runs.ProjectID,
		EnvironmentID: c.Runs.EnvironmentID, PlanID: planID, PlanVersion: planVersion,
	}
	if !runevents.IsID(run.RunID) {
		return run, fmt.Errorf("%w: %q, for a run", runlog.ErrBadID, run.RunID)
	}
	return run, nil
}

// lacksConsole reports whether a binding needs the console that this engine has not.
func (c *Config) lacksConsole(binding apply.Binding) bool {
	return binding.Spec().NeedsConsole && c.RCON == nil
}

// mayBind returns an error if this engine cannot serve a binding.
func (c *Config) mayBind(binding apply.Binding) error {
	err := binding.Validate()
	if err == nil && c.lacksConsole(binding) {
		err = fmt.Errorf("engine: no console is configured to apply commands by %s", binding)
	}
	if err != nil {
		return schemas.Invalid(schemas.TownPutRequest, schemas.Violation{
			Path: "/apply", Message: phrase.Sentence(err),
		})
	}
	return nil
}

// CheckConfig returns how many towns a world file has, or the error that would keep an engine from
// starting with the configuration and that file. file may be nil. It starts nothing.
func CheckConfig(config Config, file []byte) (towns int, err error) {
	if config, err = config.withDefaults(); err != nil || file == nil {
		return 0, err
	}
	list, err := worldfile.Parse(file, config.mayBind)
	return len(list), err
}
