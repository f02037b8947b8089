package worldengine

import "time"

// pausedBy says that an operator has paused a town, or the world.
type pausedBy struct {
	SignalID string    `json:"signalId"` // the run of the signal
	ActorID  string    `json:"actorId"`
	Reason   string    `json:"reason,omitzero"`
	At       time.Time `json:"at"`
}
