package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/trace"
)

// Bounds of the list of a town.
const (
	// MaxOpen is how many proposals of a town may wait, or be approved and not carried out yet.
	MaxOpen = 100
	// MaxBytes is how many bytes these proposals' handoffs may have together.
	MaxBytes = 128 << 10
	// MaxActorOpen and MaxActorBytes are the same bounds for the proposals of one actor, so that
	// one agent leaves room for others. A handoff above MaxActorBytes cannot wait at all.
	MaxActorOpen  = 50
	MaxActorBytes = 64 << 10
	// MaxDenied bounds the denied proposals of the town's present state: if a list has so many, no
	// other proposal may wait. They are not dropped before they expire, so a list has fewer than
	// MaxOpen + MaxDenied of them.
	MaxDenied = 100
	// maxClosed bounds the used entries and the entries of other states that a list keeps. It keeps
	// the ones that were decided or asked for last.
	maxClosed = 16
)

// DefaultTimeout is how long a proposal waits for its decision, and an approval for its handoff.
const DefaultTimeout = 24 * time.Hour

// Decision is a person's decision about a proposal.
type Decision struct {
	Approved bool      `json:"approved"`
	SignalID string    `json:"signalId"` // the run of the signal
	ActorID  string    `json:"actorId"`
	Reason   string    `json:"reason,omitzero"`
	At       time.Time `json:"at"`
}

// Request asks a person to approve a proposal: it waits, or was decided about, or has expired.
type Request struct {
	HandoffID    string `json:"handoffId"`
	SnapshotHash string `json:"snapshotHash"`
	// Handoff is the handoff as the engine writes it. It is left out once the entry is closed:
	// denied, accepted for execution, or of an earlier state of the town.
	Handoff jsontext.Value `json:"handoff,omitzero"`
	// HandoffHash is Hash of the handoff.
	HandoffHash string `json:"handoffHash"`
	// Trace is the trace of the delivery that asked for the approval. The run that carries the
	// handoff out continues it. A closed entry has none.
	Trace trace.Context `json:"trace,omitzero"`
	// IdempotencyKey and RunID find the result of a handoff that was accepted for execution; ""
	// before.
	IdempotencyKey string    `json:"idempotencyKey,omitzero"`
	RunID          string    `json:"runId,omitzero"`
	At             time.Time `json:"at"`
	// Expires is when the wait for a decision ends or, once there is one, the decision lapses.
	Expires  time.Time `json:"expires"`
	Decision *Decision `json:"decision,omitzero"`
}

// Hash returns the SHA-256 of a handoff as the engine writes it, in hexadecimal. It names the bytes
// that a person is shown. A handoffId does not: it names the proposal's id and the command.
func Hash(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// matches reports whether an entry is of the handoff with an id and a hash.
func (a *Request) matches(handoffID, handoffHash string) bool {
	return a.HandoffID == handoffID && a.HandoffHash == handoffHash
}

// List is a town's proposals, in the order in which they were asked for. No method changes a list:
// each returns another one.
type List []Request

// Status is the state of an entry.
type Status string

// The statuses of an entry.
const (
	Waiting  Status = "waiting"
	Approved Status = "approved" // and not accepted for execution yet
	Denied   Status = "denied"
	Used     Status = "used"  // approved, and accepted for execution
	Stale    Status = "stale" // the town has changed since
	Expired  Status = "expired"
)

// Status returns the status of an entry; hash is the hash of the town's state.
func (a *Request) Status(hash string, now time.Time) Status {
	switch d := a.Decision; {
	case d != nil && d.Approved && a.Handoff == nil:
		return Used
	case a.SnapshotHash != hash:
		return Stale
	case !now.Before(a.Expires):
		return Expired
	case d == nil && a.Handoff == nil:
		return Stale // the town had changed, and is in the same state again
	case d == nil:
		return Waiting
	case d.Approved:
		return Approved
	}
	return Denied
}

// IsOpen reports whether an entry waits, for its decision or its handoff.
func (s Status) IsOpen() bool { return s == Waiting || s == Approved }

// Add returns the list with another handoff, which waits for its decision until timeout; traced is the
// handoff's trace. Other handoffs with the same handoffId stay: an agent may predict another
// agent's ids.
func (l List) Add(
	h *handoff.Handoff, encoded []byte, traced trace.Context, now time.Time, timeout time.Duration,
) List {
	hash := Hash(encoded)
	var after List
	for _, a := range l.CloseStale(h.SnapshotHash) {
		if !a.matches(h.HandoffID, hash) && now.Before(a.Expires) {
			after = append(after, a)
		}
	}
	return append(after, Request{
		HandoffID: h.HandoffID, SnapshotHash: h.SnapshotHash, Handoff: encoded, HandoffHash: hash,
		Trace: traced, At: now, Expires: now.Add(timeout),
	})
}

// CloseStale returns the list with the entries of other states than the hash closed. Of
// these and the used ones the last maxClosed are kept. The denials of the state stay.
func (l List) CloseStale(hash string) List {
	changed, after := false, slices.Clone(l)
	var droppable []*Request
	for i := range after {
		a := &after[i]
		if a.Handoff != nil && a.SnapshotHash != hash {
			// An unused approval no longer counts.
			a.clearHandoff()
			a.Decision, changed = nil, true
		}
		if a.isDroppable(hash) {
			droppable = append(droppable, a)
		}
	}
	slices.SortStableFunc(droppable, func(a, b *Request) int { return a.changedAt().Compare(b.changedAt()) })
	dropped := droppable[:max(len(droppable)-maxClosed, 0)]
	if len(dropped) == 0 && !changed {
		return l
	}
	var kept List
	for i := range after {
		if !slices.Contains(dropped, &after[i]) {
			kept = append(kept, after[i])
		}
	}
	return kept
}

// isDroppable reports whether an entry may be dropped in a town whose state has the hash: it is closed,
// and is no denial of that state.
func (a *Request) isDroppable(hash string) bool {
	denied := a.Decision != nil && !a.Decision.Approved && a.SnapshotHash == hash
	return a.Handoff == nil && !denied
}

// changedAt returns when an entry was decided about or, if it was not, when it was asked for.
func (a *Request) changedAt() time.Time {
	if a.Decision != nil {
		return a.Decision.At
	}
	return a.At
}

// Find returns the last entry of a handoff, nil if there is none.
func (l List) Find(handoffID, handoffHash string) *Request {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].matches(handoffID, handoffHash) {
			return &l[i]
		}
	}
	return nil
}

// DecidedBy returns the entry that the signal of a run decided about, or nil.
func (l List) DecidedBy(signalID string) *Request {
	for i := range l {
		if l[i].Decision != nil && l[i].Decision.SignalID == signalID {
			return &l[i]
		}
	}
	return nil
}

// AnyOpen reports whether the list has an entry that is not closed.
func (l List) AnyOpen() bool {
	return slices.ContainsFunc(l, func(a Request) bool { return a.Handoff != nil })
}

// MarkUsed returns the list after a handoff was accepted for execution in a run. Other handoffs with
// its handoffId have the same key, so they wait no longer.
func (l List) MarkUsed(h *handoff.Handoff, encoded []byte, runID string) List {
	if len(l) == 0 {
		return l
	}
	hash, after := Hash(encoded), slices.Clone(l)
	for i := range after {
		entry := &after[i]
		if entry.HandoffID != h.HandoffID || entry.Handoff == nil {
			continue
		}
		if entry.clearHandoff(); entry.HandoffHash == hash {
			entry.IdempotencyKey, entry.RunID = h.IdempotencyKey, runID
		} else {
			entry.Decision = nil
		}
	}
	return after
}

// clearHandoff leaves out the members that are needed only as long as the handoff may be executed.
func (a *Request) clearHandoff() { a.Handoff, a.Trace = nil, trace.Context{} }
