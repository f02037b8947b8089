package worldengine

import (
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/waiting"
)

// Answer is the answer to a handoff.
type Answer = machine.Answer

// Client gets the answer to a handoff, or the error that kept it from being judged, once.
type Client = game.Client

// delivery is one delivery of a handoff on its way to an answer.
type delivery struct {
	waiting.Run
	client Client
	// retries is the run that it tries again; nil if there is none.
	retries *runs.Failed
	// drawn has the ids of the run's events from a step whose record was not stored.
	drawn []runevents.DrawnID
	// answered reports whether its client has an error, and nothing is left to do.
	answered bool
}

// newDelivery returns a delivery of a handoff, in a run of its own.
func (e *Engine) newDelivery(h *handoff.Handoff, traced trace.Context) (*delivery, error) {
	run, err := e.newRun(h.ProposalID, h.Proposal.SchemaVersion)
	run.Trace = traced
	return &delivery{Run: waiting.Run{Identity: run, Handoff: h, Queued: time.Now()}}, err
}

// retryOf returns the run that a delivery tries again, nil if there is none.
func (d *delivery) retryOf() *apply.RetryOf {
	if d.retries == nil {
		return nil
	}
	return &d.retries.RetryOf
}

// turn is how the turn of a delivery, or of a change, ended. The set is closed.
type turn int

const (
	// answered: the client gets the answer, or the error.
	answered turn = iota
	// parked: the town cannot go on yet.
	parked
	// handedOver: the command is being applied, and its application answers the client.
	handedOver
)
