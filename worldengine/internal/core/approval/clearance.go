package approval

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
)

// Clearance says whether a handoff whose type requires an approval may be executed now.
type Clearance struct {
	// Approved is the decision with which the handoff may be executed; nil if it may not.
	Approved *Decision
	// Reason and Detail say why the handoff may not be executed.
	Reason handoff.ReasonCode
	Detail string
	// Enqueue is set if the handoff has to wait in the list from now on.
	Enqueue bool
	// At is the time of the clearance; zero after a denial or at a bound.
	At time.Time
}

// Clearance returns the clearance of a handoff that was made from the town's present state, and whose
// type requires an approval by policy p. encoded is the handoff as the engine writes it. A decision
// counts only for the very bytes that the person was shown.
func (l List) Clearance(p Policy, h *handoff.Handoff, encoded []byte, now time.Time) Clearance {
	required := Clearance{
		Reason: handoff.ReasonApprovalRequired, Detail: p.Explain(h.Proposal.Type), At: now,
	}
	var status Status
	entry := l.Find(h.HandoffID, Hash(encoded))
	if entry != nil {
		status = entry.Status(h.SnapshotHash, now)
	}
	switch status {
	case Denied:
		decision := entry.Decision
		detail := "Denied by " + decision.ActorID
		if decision.Reason != "" {
			detail += ": " + decision.Reason
		}
		return Clearance{Reason: handoff.ReasonApprovalDenied, Detail: detail}
	case Approved:
		return Clearance{Approved: entry.Decision, At: now}
	case Waiting:
		return required
	}
	if len(encoded) > MaxActorBytes {
		return Clearance{
			Reason: handoff.ReasonApprovalTooLarge,
			Detail: fmt.Sprintf("%s, and a handoff of %d bytes cannot wait for one: at most %d; "+
				"shorten the texts of the proposal", required.Detail, len(encoded), MaxActorBytes),
		}
	}
	if full := l.exceededBound(h, len(encoded), now); full != "" {
		return Clearance{
			Reason: handoff.ReasonApprovalsFull, Detail: required.Detail + ", and " + full,
		}
	}
	required.Enqueue = true
	return required
}

// exceededBound describes the bound that keeps another handoff of a size from waiting; "" if it may wait.
func (l List) exceededBound(h *handoff.Handoff, size int, now time.Time) string {
	open, denied, own := 0, 0, 0
	all, ownBytes := size, size
	for i := range l {
		switch status := l[i].Status(h.SnapshotHash, now); {
		case status.IsOpen():
			open++
			all += len(l[i].Handoff)
			if l[i].proposer() == h.Proposal.ActorID {
				own++
				ownBytes += len(l[i].Handoff)
			}
		case status == Denied:
			denied++
		}
	}
	switch {
	case open >= MaxOpen || all > MaxBytes:
		return "too many proposals of the town wait for one"
	case own >= MaxActorOpen || ownBytes > MaxActorBytes:
		return "too many proposals of this actor wait for one in the town"
	case denied >= MaxDenied:
		return fmt.Sprintf("%d proposals made from this state of the town were denied; "+
			"no other waits until the town changes or the denials expire", denied)
	}
	return ""
}

// proposer returns the actor of an open entry's proposal.
func (a *Request) proposer() string {
	var h handoff.Handoff
	if json.Unmarshal(a.Handoff, &h) != nil {
		return ""
	}
	return h.Proposal.ActorID
}
