package worldengine

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/town"
)

// Config says how an engine works. The zero value of every member means its documented default;
// Open validates it once.
type Config struct {
	// World is the world's name, a subject token; "main".
	World string
	// Rules are the amounts of the built-in rules; nil for town.DefaultRules.
	Rules *town.Rules
	// Apply is who applies the accepted commands of the towns that have no binding of their own;
	// ApplyLocal. ApplyRCON needs RCON.
	Apply Binding
	// Plugins is the connection over which plugins are asked; that of the engine. It is another one
	// where plugins are in another NATS account.
	Plugins *nats.Conn
	// Plugin is the policy of asking whoever applies commands outside the engine.
	Plugin PluginPolicy
	// RCON applies the commands of towns that are bound to it; nil where none may be.
	RCON Applier
	// DedupeRetention is how long a receipt is kept; 30 days. At least 1 s.
	DedupeRetention time.Duration
	// EventRetention is how long the run events are kept on the bus; 30 days. At least 1 s.
	EventRetention time.Duration
	// EventLimit is how many run events are kept on the bus at most, the oldest go first; 10,000,000,
	// those of about a million runs, for which NATS needs some 350 MB of live heap. -1 for no limit. A
	// run of which it has discarded the first ones is unknown, and AppendEvents stores again what it has
	// discarded. What is over a limit that is lowered goes when the engine is opened.
	EventLimit int64
	// HistoryPerTown is how many commits, and how many refused runs, the log keeps of a town;
	// 10,000. The last commit, the town's state, never expires.
	HistoryPerTown int64
	// Replicas is how many servers of a cluster keep each stream; 1.
	Replicas int
	// Workers is how many towns are worked on at once; 256.
	Workers int
	// QueuePerTown is how many requests may wait for one town; 256. Nor may one town have more in hand
	// than there are places free of QueueTotal.
	QueuePerTown int
	// QueueTotal is how many requests may be in hand altogether; 2,048. It is at least twice QueuePerTown
	// where one town alone is to have all of its places.
	QueueTotal int
	// DeliveryAttempts is how often the bus may refuse a message for a reason that lies in the message
	// before that becomes a dead letter; 8.
	DeliveryAttempts int
	// ValidateTransitions makes AppendEvents refuse an event that a projector would have to ignore,
	// with INVALID_TRANSITION, at the cost of a projection of the run for every append to it; false:
	// it is stored, and projectors deal with it.
	ValidateTransitions bool
	// Projector projects the run events as they come, so that invalid transitions are alerted about
	// and Stats tells how far projections are behind; false.
	Projector bool
	// TenantID, ProjectID and EnvironmentID stand in every run event; "default", the world's
	// name, and "local".
	TenantID, ProjectID, EnvironmentID string
	// Now is the clock of the producer, and of what the log says about when attempts to apply a command
	// begin and end; NewID draws a UUID v4, as runevents.IsID wants it; time.Now and uuid.NewString. They
	// never reach a result. No handoff is judged with another id.
	Now   func() time.Time
	NewID func() string
	// OnAlert, where set, is called with every alert, beside its way into the log and the stream of
	// alerts. It must not block and must be safe for concurrent use.
	OnAlert func(runevents.Alert)
	// Logger is where trouble is told; slog.Default.
	Logger *slog.Logger

	// draw returns a duration from 0 up to another, by chance: only pauses depend on it.
	draw func(below time.Duration) time.Duration
}

func (c Config) withDefaults() (Config, error) {
	c.World = orDefault(c.World, DefaultWorld)
	c.Apply = orDefault(c.Apply, ApplyLocal)
	c.Plugin = c.Plugin.withDefaults()
	c.DedupeRetention = orDefault(c.DedupeRetention, dedupe.DefaultRetention)
	c.EventRetention = orDefault(c.EventRetention, dedupe.DefaultRetention)
	c.EventLimit = orDefault(c.EventLimit, DefaultEventLimit)
	c.HistoryPerTown = orDefault(c.HistoryPerTown, DefaultHistoryPerTown)
	c.Replicas = orDefault(c.Replicas, 1)
	c.Workers = orDefault(c.Workers, 256)
	c.QueuePerTown = orDefault(c.QueuePerTown, 256)
	c.QueueTotal = orDefault(c.QueueTotal, 2048)
	c.DeliveryAttempts = orDefault(c.DeliveryAttempts, follow.DefaultAttempts)
	c.TenantID = orDefault(c.TenantID, "default")
	c.ProjectID = orDefault(c.ProjectID, c.World)
	c.EnvironmentID = orDefault(c.EnvironmentID, "local")
	if c.Rules == nil {
		rules := town.DefaultRules()
		c.Rules = &rules
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = uuid.NewString
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.draw == nil {
		c.draw = rand.N[time.Duration]
	}
	return c, c.validate()
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
	problems := []error{ValidateWorld(c.World), c.Rules.Validate(), c.Apply.validate(), c.Plugin.validate()}
	if c.Apply == ApplyRCON && c.RCON == nil {
		problems = append(problems, errors.New("worldengine: to apply commands by rcon takes a console to do it"))
	}
	if c.DedupeRetention < time.Second || c.EventRetention < time.Second {
		problems = append(problems, errors.New("worldengine: a retention is at least 1 s"))
	}
	if c.EventLimit < -1 {
		problems = append(problems,
			fmt.Errorf("worldengine: a limit of run events is at least 1, or -1 for none, not %d", c.EventLimit))
	}
	for name, value := range map[string]int64{
		"history per town": c.HistoryPerTown, "replicas": int64(c.Replicas),
		"workers": int64(c.Workers), "queue per town": int64(c.QueuePerTown), "queue": int64(c.QueueTotal),
		"delivery attempts": int64(c.DeliveryAttempts),
	} {
		if value < 1 {
			problems = append(problems, fmt.Errorf("worldengine: %s must be at least 1, not %d", name, value))
		}
	}
	return errors.Join(problems...)
}

func orDefault[T comparable](v, or T) T {
	var zero T
	if v == zero {
		return or
	}
	return v
}
