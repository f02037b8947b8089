package apply

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
)

// Pending is an accepted handoff whose command is being applied outside the engine. From the
// acceptance of the handoff until its end, every record of the town has the Pending. So an engine
// that reads only the town's last message can go on. Until the end the town's state is unchanged. The
// members "via", "rested" and "last" keep the names under which they are stored.
type Pending struct {
	Binding Binding `json:"via"`
	// Handoff is the accepted handoff, as it was sent.
	Handoff jsontext.Value `json:"handoff"`
	// Expected is the canonical JSON of the state that the rules expect afterwards. It is kept
	// because the rules may change while the command is applied.
	Expected jsontext.Value `json:"expected"`
	// RetryOf is the run that Run retries; nil if none.
	RetryOf *RetryOf `json:"retryOf,omitzero"`
	// Run is the run of the handoff, and Emitted the number of its events in the first commit.
	Run     runevents.Identity `json:"run"`
	Emitted int64              `json:"emitted"`
	// EventIDs were drawn for the events up to the next attempt or the end. They are the run's
	// durable EventIdRegistry.
	EventIDs []runlog.DrawnID `json:"eventIds,omitzero"`
	// Accepted is when the first commit was made.
	Accepted time.Time `json:"accepted"`
	// Attempt counts the logical attempts, from 1. The present one begins at NotBefore and lasts until
	// Deadline, or longer: a pause, an absent game and the next writer prolong it.
	Attempt   int64     `json:"attempt"`
	NotBefore time.Time `json:"notBefore"`
	Deadline  time.Time `json:"deadline"`
	// MayHaveReached reports whether a request of an earlier attempt, or of an earlier server, may have
	// reached a game.
	MayHaveReached bool `json:"reached,omitzero"`
	// StoppedUnreached reports that the writer has stopped, and that no request at all has arrived. LastFailure is
	// the failure of the previous attempt.
	StoppedUnreached bool     `json:"rested,omitzero"`
	LastFailure      *Failure `json:"last,omitzero"`
}

// RetryOf is a run that failed because no plugin or console was reachable, and that another run
// retries.
type RetryOf struct {
	RunID string `json:"runId"`
	// LogSeq is the log sequence of the run's end.
	LogSeq uint64 `json:"logSeq"`
}

// Failure is why an attempt to apply a command failed.
type Failure struct {
	Reason handoff.ReasonCode `json:"reason"` // the result's, if no other attempt follows
	// Code and Message are the plugin's or the engine's.
	Code      string `json:"code,omitzero"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	// At is when the attempt failed.
	At time.Time `json:"at,omitzero"`
}

// DecodedPending is a Pending with decoded members.
type DecodedPending struct {
	Pending  *Pending
	Handoff  *handoff.Handoff
	Expected town.State
}

// Decode decodes a Pending. Only a valid one is stored, so an error means damage.
func (p *Pending) Decode() (DecodedPending, error) {
	h, err := handoff.Parse(p.Handoff, schemas.Limits{Bytes: len(p.Handoff) + 1})
	if err != nil {
		return DecodedPending{}, fmt.Errorf("apply: the pending handoff of run %s: %w",
			p.Run.RunID, err)
	}
	expected, err := town.ParseStored(p.Expected)
	if err != nil {
		return DecodedPending{}, fmt.Errorf("apply: the expected state of run %s: %w",
			p.Run.RunID, err)
	}
	return DecodedPending{Pending: p, Handoff: h, Expected: expected}, nil
}

// NextAttempt returns the Pending of the next logical attempt. failed is the present one's failure.
func (p *Pending) NextAttempt(failed Failure, reached bool, now time.Time, policy *RetryPolicy) *Pending {
	n := *p
	n.Attempt++
	n.NotBefore = now.Add(policy.BackoffAfter(p.Attempt)).UTC()
	n.Deadline = n.NotBefore.Add(policy.Deadline)
	n.MayHaveReached, n.StoppedUnreached = p.MayHaveReached || reached, false
	n.LastFailure = &failed
	return &n
}
