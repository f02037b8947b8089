package plugin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/wire"
)

// Reason codes of the package's own refusals.
const (
	// ReasonDeadlinePassed: the command's turn came after its deadline, so it was not begun.
	// Retryable.
	ReasonDeadlinePassed = "DEADLINE_PASSED"
	// ReasonOutcomeUnknown: the command was begun and may or may not be applied. Not retryable;
	// compare the game with the town, and town.put the true state.
	ReasonOutcomeUnknown = "OUTCOME_UNKNOWN"
	// ReasonMemoryFailed: the memory cannot be written, so the command was not begun. Retryable.
	ReasonMemoryFailed = "MEMORY_FAILED"
)

// Func applies a command to the game, or finds its outcome, and returns a definite answer
// (apply.Done, apply.Refuse, or one with the town's true Snapshot). It may be called for several
// towns at once, never twice at once for one town.
//
// ctx is done when Close has waited long enough, not at the command's deadline: finishing a begun
// command is better. The caller sets the ids of the answer.
type Func func(ctx context.Context, c *apply.Command) (apply.Answer, error)

// Config configures a plugin. Apply and Memory are required; other zero values mean their
// documented defaults.
type Config struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// Towns are the ids of this process's towns; by default all towns of the world.
	Towns []string

	// Apply changes the game. Besides a definite answer it may return apply.Busy if it did not
	// begin (so does an error that wraps apply.ErrUnavailable), and apply.InProgress if it is not
	// done: then the next request asks Recover. Any other error, an invalid answer and a panic
	// leave the command in doubt: see Recover.
	Apply Func
	// Recover finds the outcome of a command that was begun: it looks at the game, and may finish a
	// command that is half done. It answers like Apply: apply.Done; a refusal, or apply.Busy to
	// have Apply called again, only if nothing of the command is in the game. An error or
	// apply.InProgress means that the outcome is not known yet. Without Recover such a command is
	// refused for good with ReasonOutcomeUnknown.
	Recover Func

	// Answered is called with each answer after its sending; nil for ErrNoAnswer. again reports that
	// neither Apply nor Recover was called for it: the command is known, or waits. It must not block
	// for long and must be safe for concurrent use; may be nil.
	Answered func(c *apply.Command, answer *apply.Answer, again bool)

	// Memory remembers the outcome of every command: OpenFile.
	Memory Memory

	// Queue bounds the commands that wait or are being applied; 256. More are answered busy.
	Queue int
	// Concurrency bounds the towns that are worked on at once; 8.
	Concurrency int
	// RetryAfter is the engine's pause after busy and in-progress; 500 ms.
	RetryAfter time.Duration
	// ClockSkew bounds the difference to the engine's clock: beyond it a deadline has passed,
	// whatever timeoutMs says; 1 minute.
	ClockSkew time.Duration
	// Now is the clock; time.Now.
	Now func() time.Time
	// Logger logs for operators; slog.Default.
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
		c.Answered = func(*apply.Command, *apply.Answer, bool) {}
	}
	switch err := wire.ValidateWorld(c.World); {
	case c.Apply == nil:
		return c, fmt.Errorf("%w: Apply is missing", ErrConfig)
	case c.Memory == nil:
		return c, fmt.Errorf("%w: Memory is missing; OpenFile keeps one in a file", ErrConfig)
	case c.Queue < 0 || c.Concurrency < 0 || c.RetryAfter < 0 || c.ClockSkew < 0:
		return c, fmt.Errorf("%w: Queue, Concurrency, RetryAfter and ClockSkew are above 0",
			ErrConfig)
	case slices.Contains(c.Towns, ""):
		return c, fmt.Errorf("%w: Towns has an empty id", ErrConfig)
	case err != nil:
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}

// Subjects returns the subjects, each once, of a plugin for these towns of a world; no towns means
// all of the world.
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
