package approval

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// Bounds of the list of a town.
const (
	// MaxOpen is how many proposals of a town may wait, or be approved and not be carried out yet.
	MaxOpen = 100
	// MaxBytes is how large their handoffs may be together.
	MaxBytes = 128 << 10
	// MaxDenied is how many denials of the town's present state a list may have for another
	// proposal to wait. No denial of that state is dropped before it expires, so a list has fewer
	// than MaxOpen + MaxDenied of them.
	MaxDenied = 100
	// maxClosed is how many of the other entries a list keeps: the used ones, and those of other
	// states. The ones that were decided, or asked for, last are kept.
	maxClosed = 16
)

// DefaultTimeout is how long a proposal waits for its decision, and an approval for its handoff.
const DefaultTimeout = 24 * time.Hour

// Decision is what a person decided about a proposal.
type Decision struct {
	Approved bool      `json:"approved"`
	SignalID string    `json:"signalId"` // the run of the signal
	ActorID  string    `json:"actorId"`
	Reason   string    `json:"reason,omitzero"`
	At       time.Time `json:"at"`
}

// Asked is a proposal that a person is, or was, asked about.
type Asked struct {
	HandoffID    string `json:"handoffId"`
	SnapshotHash string `json:"snapshotHash"`
	// Handoff is what was asked for, as the engine writes it. It is left out once the entry is
	// closed: denied, accepted for execution, or of a state that the town is not in any more.
	Handoff jsontext.Value `json:"handoff,omitzero"`
	At      time.Time      `json:"at"`
	// Expires is when the question lapses, or the decision about it.
	Expires  time.Time `json:"expires"`
	Decision *Decision `json:"decision,omitzero"`
}

// List is what a town's record has of proposals, in the order in which they were asked for. No
// method changes a list: what it returns is another one.
type List []Asked

// Status is where an entry is.
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

// Status returns where an entry is in a town whose state has a hash.
func (a *Asked) Status(hash string, now time.Time) Status {
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

// IsOpen reports whether a status is that of an entry that waits, for its decision or its handoff.
func (s Status) IsOpen() bool { return s == Waiting || s == Approved }

// Verdict is what a list says about a handoff whose type takes an approval.
type Verdict struct {
	// Approved is the decision with which the handoff may be executed; nil where it may not.
	Approved *Decision
	// Reason and Detail are why it may not.
	Reason handoff.ReasonCode
	Detail string
	// Ask is set where the list has to have the handoff from now on.
	Ask bool
}

// Judge returns what the list says about a handoff that was made from the state of the town, and
// whose type takes an approval by the town's policy; encoded is the handoff as the engine writes
// it.
func (l List) Judge(p Policy, h *handoff.Handoff, encoded []byte, now time.Time) Verdict {
	required := Verdict{
		Reason: handoff.ReasonApprovalRequired, Detail: p.Detail(h.Proposal.Type),
	}
	i, status := l.find(h.HandoffID, h.SnapshotHash, now)
	switch {
	case status == Denied:
		d := l[i].Decision
		detail := "Denied by " + d.ActorID
		if d.Reason != "" {
			detail += ": " + d.Reason
		}
		return Verdict{Reason: handoff.ReasonApprovalDenied, Detail: detail}
	case status.IsOpen() && !bytes.Equal(l[i].Handoff, encoded):
		required.Detail += "; another handoff with the same handoffId is asked about"
		return required
	case status == Approved:
		return Verdict{Approved: l[i].Decision}
	case status == Waiting:
		return required
	}
	if full := l.full(len(encoded), h.SnapshotHash, now); full != "" {
		return Verdict{
			Reason: handoff.ReasonApprovalsFull, Detail: required.Detail + ", and " + full,
		}
	}
	required.Ask = true
	return required
}

// find returns the last entry of a handoff and its status, "" where there is none.
func (l List) find(handoffID, hash string, now time.Time) (int, Status) {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].HandoffID == handoffID {
			return i, l[i].Status(hash, now)
		}
	}
	return -1, ""
}

// full returns why a handoff of a size cannot wait too, "" where it can.
func (l List) full(size int, hash string, now time.Time) string {
	open, denied := 0, 0
	for i := range l {
		switch status := l[i].Status(hash, now); {
		case status.IsOpen():
			open++
			size += len(l[i].Handoff)
		case status == Denied:
			denied++
		}
	}
	switch {
	case open >= MaxOpen || size > MaxBytes:
		return "too many proposals of the town wait for one"
	case denied >= MaxDenied:
		return fmt.Sprintf("%d proposals made from this state of the town were denied; "+
			"no other waits until the town changes or the denials expire", denied)
	}
	return ""
}

// Ask returns the list with a handoff that waits for its decision for so long.
func (l List) Ask(h *handoff.Handoff, encoded []byte, now time.Time, timeout time.Duration) List {
	var after List
	for _, a := range l.On(h.SnapshotHash) {
		if a.HandoffID != h.HandoffID && now.Before(a.Expires) {
			after = append(after, a)
		}
	}
	return append(after, Asked{
		HandoffID: h.HandoffID, SnapshotHash: h.SnapshotHash, Handoff: encoded,
		At: now, Expires: now.Add(timeout),
	})
}

// On returns the list in a town whose state has a hash: entries of other states are closed, and of
// those and the used ones no more are kept than a list may have. The denials of the state stay.
func (l List) On(hash string) List {
	changed, after := false, slices.Clone(l)
	var spent []int
	for i := range after {
		a := &after[i]
		if a.Handoff != nil && a.SnapshotHash != hash {
			// An approval that was not used counts for nothing.
			a.Handoff, a.Decision, changed = nil, nil, true
		}
		if a.isSpent(hash) {
			spent = append(spent, i)
		}
	}
	drop := max(len(spent)-maxClosed, 0)
	if drop == 0 && !changed {
		return l
	}
	slices.SortStableFunc(spent, func(i, j int) int {
		return after[i].last().Compare(after[j].last())
	})
	spent = spent[:drop]
	slices.SortFunc(spent, func(i, j int) int { return j - i })
	for _, i := range spent {
		after = slices.Delete(after, i, i+1)
	}
	return after
}

// isSpent reports whether an entry may be dropped in a town whose state has a hash: it is closed,
// and is no denial of that state.
func (a *Asked) isSpent(hash string) bool {
	denied := a.Decision != nil && !a.Decision.Approved && a.SnapshotHash == hash
	return a.Handoff == nil && !denied
}

// last returns when an entry was decided, or asked for where it was not.
func (a *Asked) last() time.Time {
	if a.Decision != nil {
		return a.Decision.At
	}
	return a.At
}

// AnyOpen reports whether the list has an entry that is not closed.
func (l List) AnyOpen() bool {
	return slices.ContainsFunc(l, func(a Asked) bool { return a.Handoff != nil })
}

// Close returns the list once a handoff is accepted for execution.
func (l List) Close(handoffID string) List {
	i := slices.IndexFunc(l, func(a Asked) bool {
		return a.HandoffID == handoffID && a.Handoff != nil
	})
	if i < 0 {
		return l
	}
	after := slices.Clone(l)
	after[i].Handoff = nil
	return after
}

// Refusal is why a decision is not taken.
type Refusal struct {
	Code    wire.Code
	Message string
}

// Decide returns the list with a decision, which counts for so long, and the entry that it is
// about. Where the same person has decided the same before, that is returned as it was, and the
// list as it is.
func (l List) Decide(
	handoffID, hash string, d Decision, timeout time.Duration,
) (List, Asked, *Refusal) {
	i, status := l.find(handoffID, hash, d.At)
	switch status {
	case Waiting:
	case Approved, Denied, Used:
		prior := l[i].Decision
		if status != Used && prior.Approved == d.Approved && prior.ActorID == d.ActorID {
			return l, l[i], nil
		}
		return nil, Asked{}, &Refusal{wire.CodeAlreadyDecided,
			fmt.Sprintf("%s has decided it at %s: %s",
				prior.ActorID, prior.At.Format(time.RFC3339), status)}
	case Stale:
		return nil, Asked{}, &Refusal{wire.CodeApprovalStale,
			"the town has changed since it was asked for, " +
				"and a handoff that was made from its state of then is stale"}
	case Expired:
		return nil, Asked{}, &Refusal{wire.CodeApprovalStale, "it has waited for too long, since " +
			l[i].At.Format(time.RFC3339) + "; it waits again when its handoff is sent again"}
	default:
		return nil, Asked{}, &Refusal{wire.CodeUnknownApproval,
			"no handoff with this id waits for an approval"}
	}
	after := slices.Clone(l)
	a := &after[i]
	a.Decision, a.Expires = &d, d.At.Add(timeout)
	decided := *a
	if !d.Approved {
		a.Handoff = nil
	}
	return after, decided, nil // the record has On of it
}

// Follows reports whether a list may stand in the record after one with the list prior, where
// nobody asked and nobody decided: entries are closed or left out.
func (l List) Follows(prior List) bool {
	for i := range l {
		if !slices.ContainsFunc(prior, l[i].closes) {
			return false
		}
	}
	return true
}

// closes reports whether an entry is another one as it is, or closed.
func (a *Asked) closes(prior Asked) bool {
	same := a.HandoffID == prior.HandoffID && a.SnapshotHash == prior.SnapshotHash &&
		a.At.Equal(prior.At) && a.Expires.Equal(prior.Expires)
	if a.Handoff != nil {
		same = same && bytes.Equal(a.Handoff, prior.Handoff)
	}
	switch {
	case a.Decision == nil:
		return same && (prior.Decision == nil || a.Handoff == nil)
	case prior.Decision == nil:
		return false
	}
	return same && a.Decision.SignalID == prior.Decision.SignalID &&
		a.Decision.Approved == prior.Decision.Approved
}
