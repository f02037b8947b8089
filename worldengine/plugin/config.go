package plugin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"worldengine/worldengine/wire"
)

// Reason codes of the package's own refusals.
const (
	// ReasonDeadlinePassed: the command's turn came after its deadline, so it was not begun. The
	// refusal is retryable.
	ReasonDeadlinePassed = "DEADLINE_PASSED"
	// ReasonOutcomeUnknown: the command was begun, and may be applied or not. The refusal is not
	// retryable: compare the game with the town, and put the true state with town.put.
	ReasonOutcomeUnknown = "OUTCOME_UNKNOWN"
	// ReasonMemoryFailed: the memory cannot be written, so the command was not begun. The refusal is
	// retryable.
	ReasonMemoryFailed = "MEMORY_FAILED"
)

// Func applies a command to the game, or finds its outcome. It returns a definite answer:
// Done, perhaps with the town's true Snapshot, or Refuse. It may be called for several
// towns at once, but not twice at once for one town. The caller sets the ids of the answer.
//
// ctx ends with the ctx of Close. It does not end at the command's deadline, since a begun command
// had better be finished.
type Func func(ctx context.Context, c *Command) (Answer, error)

// Config configures a plugin. Apply and Memory are required; other zero values mean their
// documented defaults.
type Config struct {
	// World is the world's name; wire.DefaultWorld by default.
	World string
	// Towns are the ids of this process's towns; by default all towns of the world.
	Towns []string

	// Beside serves although another plugin hosts a town, for tests. Otherwise Serve asks OtherHosts when the
	// connection has come back, and the plugin begins no command until it is the only one.
	Beside bool

	// Apply changes the game. If the command was not begun, it may also return Busy, or an
	// error that wraps ErrUnavailable; if the command is not finished, InProgress.
	// After InProgress, any other error, an invalid answer or a panic, the command is in doubt, and
	// the next request calls Recover.
	Apply Func
	// Recover finds the outcome of a begun command in the game, and may finish it. It may refuse
	// the command, or return Busy, only if nothing of the command is in the game. After
	// Busy, Apply is called again. An error or InProgress means that the outcome is not
	// known yet. Without Recover a command in doubt is refused for good with ReasonOutcomeUnknown.
	Recover Func

	// Answered, unless nil, is called after each answer is sent, and with a nil answer after
	// ErrNoAnswer. again means that the request was answered at once, without Apply or Recover.
	// Answered must not block for long and must be safe for concurrent use.
	Answered func(c *Command, answer *Answer, again bool)

	// Memory remembers the outcome of every command: see OpenFile.
	Memory Memory

	// Queue bounds the commands that wait or are being applied; 256 by default. Other commands are
	// answered busy.
	Queue int
	// Concurrency bounds the towns whose commands are applied at once; 8 by default.
	Concurrency int
	// RetryAfter is the engine's pause after busy and in-progress; 500 ms by default.
	RetryAfter time.Duration
	// ClockSkew bounds the difference between the engine's clock and this one; 1 minute by default.
	// A deadline that passed longer ago than that counts, whatever timeoutMs is.
	ClockSkew time.Duration
	// Now is the clock; time.Now.
	Now func() time.Time
	// Logger is for operators; slog.Default.
	Logger *slog.Logger
}

// withDefaults returns the config with its defaults, or an ErrConfig.
func (c Config) withDefaults() (Config, error) {
	c.World = cmp.Or(c.World, wire.DefaultWorld)
	c.Queue = cmp.Or(c.Queue, 256)
	c.Concurrency = cmp.Or(c.Concurrency, 8)
	c.RetryAfter = cmp.Or(c.RetryAfter, 500*time.Millisecond)
	c.ClockSkew = cmp.Or(c.ClockSkew, time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Answered == nil {
		c.Answered = func(*Command, *Answer, bool) {}
	}
	switch err := wire.ValidateWorld(c.World); {
	case c.Apply == nil:
		return c, fmt.Errorf("%w: Apply is missing", ErrConfig)
	case c.Memory == nil:
		return c, fmt.Errorf("%w: Memory is missing; OpenFile keeps one in a file", ErrConfig)
	case c.Queue < 0 || c.Concurrency < 0 || c.RetryAfter < 0 || c.ClockSkew < 0:
		return c, fmt.Errorf("%w: Queue, Concurrency, RetryAfter and ClockSkew must be above 0",
			ErrConfig)
	case slices.Contains(c.Towns, ""):
		return c, fmt.Errorf("%w: Towns has an empty id", ErrConfig)
	case err != nil:
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}

// Subjects returns the subjects of the requests for these towns of a world, or for all its towns if
// none is given.
func Subjects(world string, towns ...string) []string {
	if len(towns) == 0 {
		return []string{wire.ApplySubject(world, "*")}
	}
	var subjects []string
	for _, townID := range towns {
		if subject := subjectOf(world, townID); !slices.Contains(subjects, subject) {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

func subjectOf(world, townID string) string {
	return wire.ApplySubject(world, wire.TownToken(townID))
}
