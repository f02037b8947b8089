package worldengine

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// pending is an accepted handoff whose command is being applied outside the engine. It stands in
// every record of its town from the commit that accepts the handoff to the one that concludes it, so
// that whoever reads the town's last message knows all that it takes to go on. Until then the town's
// state stays what it was.
type pending struct {
	Via Binding `json:"via"`
	// Handoff is the accepted handoff, as it came.
	Handoff jsontext.Value `json:"handoff"`
	// Expected is the canonical JSON of the state that the rules expect afterwards. It is kept since the
	// rules are configuration, which may change while the command is applied.
	Expected jsontext.Value `json:"expected"`
	// Run is whose events end with the conclusion, and Emitted how many it has from the first commit.
	Run     runevents.Identity `json:"run"`
	Emitted int64              `json:"emitted"`
	// IDSeed is what the ids of the events still to come derive from: the run's durable EventIdRegistry.
	IDSeed string `json:"idSeed"`
	// Accepted is when the first commit was made.
	Accepted time.Time `json:"accepted"`
	// Attempt counts the logical attempts, from 1. NotBefore is when this one begins, and Deadline when it
	// ends.
	Attempt   int64     `json:"attempt"`
	NotBefore time.Time `json:"notBefore"`
	Deadline  time.Time `json:"deadline"`
	// Reached says that a request of an earlier attempt may have reached somebody, and Last why that
	// attempt failed.
	Reached bool         `json:"reached,omitzero"`
	Last    *applyFailed `json:"last,omitzero"`
}

// applyFailed says why an attempt to apply a command failed.
type applyFailed struct {
	Reason handoff.ReasonCode `json:"reason"` // of the result, if it was the last attempt
	// Code and Message are the plugin's own, or the engine's words.
	Code      string `json:"code,omitzero"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

// application is a pending handoff, read.
type application struct {
	pending  *pending
	handoff  *handoff.Handoff
	expected town.State
}

// read returns what a pending record says. What was stored was valid, so an error is damage.
func (p *pending) read() (application, error) {
	h, err := handoff.Parse(p.Handoff, schemas.Limits{Bytes: len(p.Handoff) + 1})
	if err != nil {
		return application{}, fmt.Errorf("worldengine: the pending handoff of run %s: %w", p.Run.RunID, err)
	}
	expected, err := town.Parse(p.Expected, schemas.Limits{Bytes: len(p.Expected) + 1})
	if err != nil {
		return application{}, fmt.Errorf("worldengine: the expected state of run %s: %w", p.Run.RunID, err)
	}
	return application{pending: p, handoff: h, expected: expected}, nil
}

// next returns the pending of the next logical attempt, after failed.
func (p *pending) next(failed applyFailed, reached bool, now time.Time, policy *PluginPolicy) *pending {
	n := *p
	n.Attempt++
	n.NotBefore = now.Add(policy.backoff(p.Attempt)).UTC()
	n.Deadline = n.NotBefore.Add(policy.Deadline)
	n.Reached = p.Reached || reached
	n.Last = &failed
	return &n
}
