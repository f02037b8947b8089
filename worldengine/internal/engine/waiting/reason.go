// Package waiting has the reasons why a client's request waits for its town, the limits of the wait, and the
// client's error after it.
package waiting

import (
	"time"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/messages"
)

// Reason is why a request waits for its town. The zero Reason is none.
type Reason struct {
	// Pause is the pause whose end the request waits for: the whole world's if World is set, otherwise
	// the town's own.
	Pause *messages.PausedBy
	World bool
	// RunBefore is the run of the command that a game is applying to the town; "" in a pause.
	RunBefore string
}

// ReasonFor returns why a handoff to a town has to wait.
func (w *WorldPause) ReasonFor(current machine.Town) Reason {
	switch by := w.Effective(current); {
	case by != nil:
		return Reason{Pause: by, World: current.Paused == nil}
	case current.Pending != nil:
		return Reason{RunBefore: current.Pending.Run.RunID}
	}
	return Reason{}
}

// Limits bound how long a client waits: for the end of a pause, and for a game that is absent.
type Limits struct{ Pause, Absence time.Duration }

// Timeout returns the limit of a wait.
func (l Limits) Timeout(why Reason) time.Duration {
	if why.Pause != nil {
		return l.Pause
	}
	return l.Absence
}
