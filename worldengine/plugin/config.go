package plugin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/wire"
)

// Reason codes of the refusals that the package gives itself.
const (
	// ReasonDeadlinePassed: the command's turn came too late, it was not begun. Retryable.
	ReasonDeadlinePassed = "DEADLINE_PASSED"
	// ReasonOutcomeUnknown: the command was begun and it is not known whether it is applied. Not
	// retryable; compare the game with the town, and town.put what is true.
	ReasonOutcomeUnknown = "OUTCOME_UNKNOWN"
	// ReasonMemoryFailed: the memory cannot be written, so the command was not begun. Retryable.
	ReasonMemoryFailed = "MEMORY_FAILED"
)

// Func applies a command to the game, or finds out what became of it, and returns a definite answer
// (apply.Done, apply.Refuse, or one with the town's true Snapshot). It may be called for several
// towns at once, never twice at once for one town.
//
// ctx is done when Close has waited long enough, not at the command's deadline: what is begun is
// better finished. The ids of the answer are set by the caller.
type Func func(ctx context.Context, c *apply.Command) (apply.Answer, error)

// Config says how a plugin works. Apply and Memory are required; the zero value of every other
// member means its documented default.
type Config struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// Towns are the ids of the towns that this process hosts; all towns of the world.
	Towns []string

	// Apply changes the game. Besides a definite answer it may give apply.Busy, where it did not
	// begin (an error that wraps apply.ErrUnavailable means the same), and apply.InProgress, where
	// it is not done: then Recover is asked at the next request. Any other error, an invalid answer
	// and a panic leave the command in doubt: see Recover.
	Apply Func
	// Recover says what became of a command that was begun and whose outcome is not known: it looks
	// at the game, and may finish what it finds half done. It answers like Apply: apply.Done; a
	// refusal, or apply.Busy to have Apply asked again, only where nothing of the command is in the
	// game. An error or apply.InProgress means that it cannot say yet. Without it such a command is
	// refused for good with ReasonOutcomeUnknown.
	Recover Func

	// Answered is called with each answer, after it was sent: nil for ErrNoAnswer. again reports
	// that neither Apply nor Recover was asked for it: the command is known, or waits. It must not
	// block for long and must be safe for concurrent use; may be nil.
	Answered func(c *apply.Command, answer *apply.Answer, again bool)

	// Memory remembers what became of every command: OpenFile.
	Memory Memory

	// Queue is how many commands may wait or be applied; 256. More are answered busy.
	Queue int
	// Concurrency is how many towns are worked on side by side; 8.
	Concurrency int
	// RetryAfter is when busy and in-progress ask the engine to come back; 500 ms.
	RetryAfter time.Duration
	// ClockSkew is how far the engine's clock may be from this one's: a deadline that has passed by
	// more has passed, whatever timeoutMs says; 1 minute.
	ClockSkew time.Duration
	// Limits bound a request; those of package schemas.
	Limits schemas.Limits
	// Now is the clock; time.Now.
	Now func() time.Time
	// Logger gets what operators should know; slog.Default.
	Logger *slog.Logger
}

// withDefaults returns the config that is meant, or an ErrConfig.
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
	return c, c.validate()
}

func (c *Config) validate() error {
	switch {
	case c.Apply == nil:
		return fmt.Errorf("%w: Apply is missing", ErrConfig)
	case c.Memory == nil:
		return fmt.Errorf("%w: Memory is missing; OpenFile keeps one in a file", ErrConfig)
	case c.Queue < 0 || c.Concurrency < 0 || c.RetryAfter < 0 || c.ClockSkew < 0:
		return fmt.Errorf("%w: Queue, Concurrency, RetryAfter and ClockSkew are above 0", ErrConfig)
	}
	for _, townID := range c.Towns {
		if townID == "" {
			return fmt.Errorf("%w: Towns has an empty id", ErrConfig)
		}
	}
	if err := wire.ValidateWorld(c.World); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// Subjects returns the subjects that a plugin for these towns of a world subscribes to, each once;
// no towns means all of the world.
func Subjects(world string, towns ...string) []string {
	if len(towns) == 0 {
		return []string{wire.ApplySubject(world, "*")}
	}
	var subjects []string
	seen := map[string]bool{}
	for _, townID := range towns {
		if subject := subjectOf(world, townID); !seen[subject] {
			seen[subject] = true
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

func subjectOf(world, townID string) string {
	return wire.ApplySubject(world, wire.TownToken(townID))
}
