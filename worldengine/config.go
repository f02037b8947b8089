package worldengine

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
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/game"
	"worldengine/worldengine/index"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/storage"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// Config says how an engine works. The zero value of every member means its documented default;
// Open validates it once.
type Config struct {
	// World is the world's name, a subject token; "main".
	World string
	// IndexDir is the directory of the index, a cache; "" keeps the index in memory alone.
	IndexDir string
	// Index is an index of the world's log that has followed it already, which stays open; nil to
	// open one until Close.
	Index *index.Index
	// Known has the messages that an earlier engine of this process has seen in the log: if the log
	// lacks some of them it is lost, as during a run; nil for none.
	Known *commitlog.Known
	// Rules are the amounts of the built-in rules; nil for town.DefaultRules.
	Rules *town.Rules
	// Apply is the binding of the towns that have none of their own: it applies their accepted
	// commands; apply.RCON requires RCON. It is one of the world's settings, as are HistoryPerTown,
	// RequireApproval and Compress. One that is not given is the stored one, and in a new world
	// commitlog.DefaultSettings'. Open refuses another one than the stored; see DiscardHistory.
	Apply apply.Binding
	// Plugins is the connection over which plugins are asked, if they are in another NATS account;
	// the engine's.
	Plugins *nats.Conn
	// Plugin is the policy of asking plugins and consoles to apply commands.
	Plugin apply.Policy
	// RCON applies the commands of towns that are bound to it; nil if none may be.
	RCON apply.Console
	// Disk is the disk of the log, which is asked before each commit; nil if only NATS knows it.
	Disk *storage.Room
	// RequireApproval selects the types of proposals that take a person's approval in towns without
	// a policy of their own: "none", or types with commas between them. It is one of the world's
	// settings, as Apply is.
	RequireApproval string
	// Compress names the streams that NATS compresses: CompressEvents or CompressAll of package
	// commitlog. It is one of the world's settings, as Apply is.
	Compress commitlog.Compression
	// ApprovalTimeout is how long a proposal waits for its decision, and an approval for its
	// handoff; 24 h. At least 1 s.
	ApprovalTimeout time.Duration
	// DiscardHistory makes the settings that are given the world's, even if that discards messages.
	DiscardHistory bool
	// Bus publishes the run events into the stream RUNEVENTS too, for durable consumers; false.
	Bus bool
	// BusRetention is how long the stream keeps run events, 30 days, at least 1 s, and BusLimit how
	// many at most, the oldest go first; 10,000,000, -1 for no limit.
	BusRetention time.Duration
	BusLimit     int64
	// HistoryPerTown is how many commits, and how many refused runs, the log keeps of a town;
	// 10,000. The last commit, the town's state, never expires.
	HistoryPerTown int64
	// AppendedRetention is how long the log keeps events that others append; 30 days.
	AppendedRetention time.Duration
	// Listeners knows who subscribes to live messages; nil publishes each.
	Listeners Listeners
	// Replicas is how many servers of a cluster keep each stream; 1.
	Replicas int
	// GroupCommits stores commits together that wait for the disk; false. It is for a world of one
	// NATS server, which brings each message to the disk before it answers.
	GroupCommits bool
	// Workers is how many towns are worked on at once; 256.
	Workers int
	// QueuePerTown is how many requests may wait for one town; 256. Nor may one town have more in
	// hand than there are places free of QueueTotal.
	QueuePerTown int
	// QueueTotal is how many requests may be in hand altogether; 2,048. One town alone has all of
	// its places only if it is at least twice QueuePerTown.
	QueueTotal int
	// PauseWait is how long a handoff waits for the end of a pause, from its arrival, before it
	// gets a WaitError; 2 s. It is to be shorter than the patience of clients. One whose game is
	// away gets one after fifteen times as long.
	PauseWait time.Duration
	// DeliveryAttempts is how often the bus may refuse a message for a reason that lies in the
	// message before that becomes a dead letter; 8.
	DeliveryAttempts int
	// ValidateTransitions makes Runs().Append refuse an event that a projector would have to
	// ignore, with INVALID_TRANSITION, at the cost of a projection of the run for every append to
	// it; false: it is stored, and projectors deal with it.
	ValidateTransitions bool
	// Projector projects the runs that others append to as they do, so that invalid transitions are
	// alerted about and Stats has how far projections are behind; false. handoffd sets it.
	Projector bool
	// TenantID, ProjectID and EnvironmentID stand in every run event; "default", the world's
	// name, and "local".
	TenantID, ProjectID, EnvironmentID string
	// Now is the clock of run events, and of the times at which attempts to apply a command begin
	// and end; NewID draws a UUID v4, as runevents.IsID wants it; time.Now and uuid.NewString. They
	// never reach a result. No handoff is judged with another id.
	Now   func() time.Time
	NewID func() string
	// Metrics counts commits and attempts; nil for none.
	Metrics Metrics
	// Notifier learns of alerts and of proposals that wait for a person; nil for none.
	Notifier Notifier
	// Lease is the lease of a writer that has other servers beside it; nil if there are none.
	Lease stepper.Lease
	// Logger gets warnings and errors; slog.Default.
	Logger *slog.Logger

	// policy is RequireApproval, read.
	policy approval.Policy
	// draw returns a duration from 0 up to another, by chance: only pauses depend on it.
	draw func(below time.Duration) time.Duration
}

// Listeners knows the subscriptions of a NATS server.
type Listeners interface {
	// Listening reports whether anybody subscribes to a subject.
	Listening(subject string) bool
}

// Metrics counts the work of an engine. Its methods must not block and must be safe for concurrent
// use.
type Metrics interface {
	game.Metrics
	// Commit counts an attempt to append to the log, and its duration.
	Commit(took time.Duration)
}

// Notifier passes on what people have to know. Its methods must not block and must be safe for
// concurrent use.
type Notifier interface {
	// Alert gets every alert, beside its way into the log and the stream of alerts.
	Alert(alert runevents.Alert)
	// Asked gets each proposal that begins to wait for a person's approval, once that is stored.
	Asked(townID string, asked *approval.Asked)
}

func (c Config) withDefaults() (Config, error) {
	c.World = cmp.Or(c.World, wire.DefaultWorld)
	c.Plugin = c.Plugin.WithDefaults()
	settings, err := c.Settings().Or(commitlog.DefaultSettings()).Checked()
	if err != nil {
		return c, err
	}
	c = c.withSettings(settings)
	c.ApprovalTimeout = cmp.Or(c.ApprovalTimeout, approval.DefaultTimeout)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Workers = cmp.Or(c.Workers, 256)
	c.QueuePerTown = cmp.Or(c.QueuePerTown, 256)
	c.QueueTotal = cmp.Or(c.QueueTotal, 2048)
	c.PauseWait = cmp.Or(c.PauseWait, 2*time.Second)
	c.DeliveryAttempts = cmp.Or(c.DeliveryAttempts, bus.DefaultAttempts)
	c.BusRetention = cmp.Or(c.BusRetention, wire.DefaultEventRetention)
	c.BusLimit = cmp.Or(c.BusLimit, wire.DefaultEventLimit)
	c.AppendedRetention = cmp.Or(c.AppendedRetention, 30*24*time.Hour)
	c.TenantID = cmp.Or(c.TenantID, "default")
	c.ProjectID = cmp.Or(c.ProjectID, c.World)
	c.EnvironmentID = cmp.Or(c.EnvironmentID, "local")
	c.Rules = cmp.Or(c.Rules, new(town.DefaultRules()))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = uuid.NewString
	}
	if c.draw == nil {
		c.draw = rand.N[time.Duration]
	}
	return c, c.validate()
}

// Settings returns the settings of the world that the configuration has.
func (c *Config) Settings() commitlog.Settings {
	return commitlog.Settings{
		HistoryPerTown: c.HistoryPerTown, Apply: c.Apply,
		RequireApproval: c.RequireApproval, Compress: c.Compress,
	}
}

// withSettings returns the configuration with the settings of the world.
func (c Config) withSettings(s commitlog.Settings) Config {
	c.HistoryPerTown = s.HistoryPerTown
	c.Apply = s.Apply
	c.RequireApproval, c.policy, c.Compress = s.RequireApproval, s.Policy(), s.Compress
	return c
}

func (c *Config) alerts() alerts.Config {
	of := alerts.Config{
		World: c.World, Replicas: c.Replicas, TenantID: c.TenantID, ProjectID: c.ProjectID,
		EnvironmentID: c.EnvironmentID, Logger: c.Logger, Now: c.Now,
	}
	if c.Notifier != nil {
		of.Notify = c.Notifier.Alert
	}
	return of
}

// newRunID draws the id of a run.
func (c *Config) newRunID() (string, error) {
	id := c.NewID()
	if !runevents.IsID(id) {
		return "", fmt.Errorf("%w: %q, for a run", runevents.ErrBadID, id)
	}
	return id, nil
}

func (c *Config) validate() error {
	err := errors.Join(wire.ValidateWorld(c.World), c.Rules.Validate(), c.Apply.Validate(),
		c.Plugin.Validate(), c.Compress.Validate())
	for _, rule := range []struct {
		holds bool
		text  string
	}{
		{c.Apply != apply.RCON || c.RCON != nil, "apply=rcon requires an RCON console"},
		{c.BusRetention >= time.Second, "a retention is at least 1 s"},
		{c.ApprovalTimeout >= time.Second, "a proposal waits at least 1 s for its approval"},
		{c.PauseWait >= 0, "a handoff cannot wait for a negative time in a pause"},
		{c.BusLimit >= -1, fmt.Sprintf(
			"a limit of run events is at least 1, or -1 for none, not %d", c.BusLimit)},
	} {
		if !rule.holds {
			err = errors.Join(err, errors.New("worldengine: "+rule.text))
		}
	}
	for _, bound := range []struct {
		name  string
		value int64
	}{
		{"history per town", c.HistoryPerTown}, {"replicas", int64(c.Replicas)},
		{"workers", int64(c.Workers)}, {"queue", int64(c.QueueTotal)},
		{"queue per town", int64(c.QueuePerTown)},
		{"delivery attempts", int64(c.DeliveryAttempts)},
	} {
		if bound.value < 1 {
			err = errors.Join(err, fmt.Errorf("worldengine: %s must be at least 1, not %d",
				bound.name, bound.value))
		}
	}
	return err
}

// absentWait is how long a request waits for a game that is away before its client gets that
// answer. A game that restarts is back after some ten seconds, while a pause lasts as long as a
// person likes.
func (c *Config) absentWait() time.Duration { return 15 * c.PauseWait }

// mayBind refuses a binding that this engine cannot serve.
func (c *Config) mayBind(binding apply.Binding) error {
	err := binding.Validate()
	if err == nil && binding == apply.RCON && c.RCON == nil {
		err = errors.New("worldengine: no console is configured to apply commands by rcon")
	}
	if err != nil {
		return schemas.Invalid(schemas.TownPutRequest, schemas.Violation{
			Path: "/apply", Message: wire.Sentence(err),
		})
	}
	return nil
}
