// Package waiting has the reasons why a client's request waits for its town, the limits of the wait, and the
// client's error after it.
package waiting

import (
	"time"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/messages"
)

// Kind is the kind of a Reason. The set is closed.
type Kind int

const (
	Nothing      Kind = iota
	EndOfPause        // of the town, or of the whole world
	EndOfCommand      // that a game is applying to the town
)

// Reason is why a request waits for its town. The zero Reason is none.
type Reason struct {
	Kind Kind
	// Pause is the pause whose end the request waits for: the whole world's if World is set, otherwise
	// the town's own.
	Pause *messages.PausedBy
	World bool
	// RunBefore is the run of the command whose end the request waits for.
	RunBefore string
}

// Waiter is a task of a town that says, to the tasks behind it, why it waits.
type Waiter interface{ WaitReason() Reason }

// ReasonFor returns why a handoff to a town has to wait. world is the pause of the world; nil if there is none.
func ReasonFor(current machine.Town, world *messages.PausedBy) Reason {
	switch {
	case current.Paused != nil:
		return Reason{Kind: EndOfPause, Pause: current.Paused}
	case world != nil:
		return Reason{Kind: EndOfPause, Pause: world, World: true}
	case current.Pending != nil:
		return Reason{Kind: EndOfCommand, RunBefore: current.Pending.Run.RunID}
	}
	return Reason{}
}

// Limits bound how long a client waits: for the end of a pause, and for a game that is absent.
type Limits struct{ Pause, Absence time.Duration }

// Timeout returns the limit of a wait.
func (l Limits) Timeout(kind Kind) time.Duration {
	switch kind {
	case EndOfPause:
		return l.Pause
	case EndOfCommand:
		return l.Absence
	}
	panic("waiting: a reason without a limit")
}
