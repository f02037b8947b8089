package worldengine

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/trace"
	"worldengine/worldengine/retry"
	"worldengine/worldengine/waiting"
)

// Answer is what a handoff gets.
type Answer struct {
	// RunID is the run that judged this delivery of the handoff.
	RunID string
	// Result is the decision and JSON its bytes on the wire.
	Result *handoff.Result
	JSON   []byte
	// Embodiment is how a game embodied the command; nil where it did not say.
	Embodiment jsontext.Value
	// First is the receipt of the first result, where Result is a duplicate; else nil.
	First *dedupe.Receipt
}

// delivery is one delivery of a handoff on its way to an answer.
type delivery struct {
	waiting.Run
	done func(Answer, error)
	// retries is the run that it tries again; nil where it does not.
	retries *retry.Failed
	// answered reports whether its client has an error, and nothing is left to do.
	answered bool
}

// newDelivery returns a delivery of a handoff, in a run of its own.
func (e *Engine) newDelivery(h *handoff.Handoff, of trace.Context) (*delivery, error) {
	run, err := e.newRun(h.ProposalID, h.Proposal.SchemaVersion)
	run.Trace = of
	return &delivery{Run: waiting.Run{Identity: run, Handoff: h, Queued: time.Now()}}, err
}

// begin gives a delivery the producer of its run's events, once: what only waits in the queue needs
// none.
func (e *Engine) begin(d *delivery) {
	if d.Producer == nil {
		d.Producer = e.newProducer(d.Identity)
	}
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
