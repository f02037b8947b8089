package worldengine

import (
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/signals"
)

// Signal is an operator's signal.
type Signal = signals.Signal

// SignalError refuses a signal. The refusal is recorded.
type SignalError = signals.RefusedError

// Control reports whether a town, or the world, is paused.
type Control struct {
	// TownID is "" for the world.
	TownID string
	// Paused says that no handoff is judged, by its own pause or the world's.
	Paused bool
	// Draining says that a command is still being applied, and Applying how many are.
	Draining bool
	Applying int
	// By is the pause; nil where there is none.
	By *commitlog.PausedBy
	// SignalID is the run of the signal that this answers, "" where none does.
	SignalID string
}

// recorder returns what makes and stores the runs of signals.
func (e *Engine) recorder() *signals.Recorder {
	return &signals.Recorder{
		Log: e.log, NewProducer: func(planID, planVersion string) (*runevents.Producer, error) {
			run, err := e.newRun(planID, planVersion)
			return e.newProducer(run), err
		},
	}
}
