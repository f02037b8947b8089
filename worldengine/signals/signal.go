package signals

import (
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// Signal is an operator's signal.
type Signal = machine.Signal

// RefusedError refuses a signal. The refusal is recorded: SignalID is its run.
type RefusedError struct {
	// Code is the code of the error reply.
	Code     wire.Code
	SignalID string
	Message  string
}

// Error returns the reason.
func (e *RefusedError) Error() string { return "worldengine: " + e.Message }
