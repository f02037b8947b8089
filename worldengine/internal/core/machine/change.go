package machine

import (
	"cmp"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/town"
)

// Attributes are a town's members beside its state. A missing one stays unchanged.
type Attributes struct {
	Binding  apply.Binding    // "" if left out
	Approval *approval.Policy // nil if left out
}

// Put replaces the state whose hash is Expected with State. If Expected is "", it creates the town.
type Put struct {
	State    town.State
	Expected string
	Attributes
	// ActorID is the author: the user, or the user's role if NATS does not name the user.
	ActorID string
}

// Patch changes members of the state whose hash is Expected, by a JSON Merge Patch (RFC 7396).
type Patch struct {
	Patch    any
	Expected string
	Attributes
	ActorID string
}

// Remove removes a town with its pause, its binding and its waiting proposals; its keys stay
// consumed. The town is unknown until a put creates it anew, at its last day or later.
type Remove struct {
	// ActorID is who removes the town: the user, or the user's role if NATS does not name the user.
	ActorID string
}

func (*Put) MaxIDs() int { return 0 }

func (*Put) TailRun(*Town) (runID string, emitted int64) { return "", 0 }

func (e *Put) effect(s *step) (Output, error) {
	if s.town.Pending != nil {
		return Output{}, ErrBusy
	}
	if err := e.State.CheckReplace(s.town.State, e.Expected); err != nil {
		return Output{}, err
	}
	if last := s.town.Removed; last != nil && e.State.Epoch() < last.Epoch() {
		return Output{}, &town.RegressionError{Day: e.State.Epoch(), Current: last.Epoch()}
	}
	after := s.town
	after.State, after.Removed = e.State, nil
	after.Binding = cmp.Or(e.Binding, after.Binding)
	after.Policy = cmp.Or(e.Approval, after.Policy)
	return Output{
		Record:   &Record{Kind: KindPut, Purpose: PurposeChange, TownID: s.in.TownID, ActorID: e.ActorID},
		NextTown: after,
	}, nil
}

func (*Patch) MaxIDs() int { return 0 }

func (*Patch) TailRun(*Town) (runID string, emitted int64) { return "", 0 }

func (e *Patch) effect(s *step) (Output, error) {
	if err := s.town.State.CheckHash(e.Expected); err != nil {
		return Output{}, err
	}
	state, err := s.town.State.Patch(e.Patch)
	if err != nil {
		return Output{}, schemas.Nest(schemas.TownPatchRequest, err, "patch")
	}
	return (&Put{state, e.Expected, e.Attributes, e.ActorID}).effect(s)
}

func (*Remove) MaxIDs() int { return 0 }

func (*Remove) TailRun(*Town) (runID string, emitted int64) { return "", 0 }

func (e *Remove) effect(s *step) (Output, error) {
	switch {
	case !s.town.State.Exists():
		return Output{}, town.ErrUnknown
	case s.town.Pending != nil:
		return Output{}, ErrBusy
	}
	last := s.town.State
	return Output{
		Record:   &Record{Kind: KindRemove, Purpose: PurposeChange, TownID: s.in.TownID, ActorID: e.ActorID},
		NextTown: Town{Removed: &last, LoadedSeq: s.town.LoadedSeq},
	}, nil
}
