package machine

import "worldengine/worldengine/town"

// Remove removes a town: it is unknown until a put makes it anew, at a day that is not before its
// last one. Its pause, its binding and what waits for approval go with it; its keys stay consumed.
type Remove struct {
	// ActorID is who removes the town: the user, or the role of one whom NATS does not name.
	ActorID string
}

func (*Remove) event() {}

// remove removes a town. The error is town.ErrUnknown.
func (s *step) remove(e *Remove) (Output, error) {
	switch {
	case !s.town.State.Exists():
		return Output{}, town.ErrUnknown
	case s.town.Pending != nil:
		return Output{}, ErrBusy
	}
	last := s.town.State
	return Output{
		Record: &Record{Kind: KindRemove, TownID: s.in.TownID, ActorID: e.ActorID},
		After:  Town{Removed: &last},
	}, nil
}

// mayReturn returns a *town.RegressionError if a state would make a removed town anew at a day
// before its last one.
func (t *Town) mayReturn(state town.State) error {
	if t.Removed != nil && state.Epoch() < t.Removed.Epoch() {
		return &town.RegressionError{Day: state.Epoch(), Current: t.Removed.Epoch()}
	}
	return nil
}

// Held returns the state that the town's last record holds: the last one of a removed town.
func (t *Town) Held() *town.State {
	if t.Removed != nil {
		return t.Removed
	}
	return &t.State
}

// Town returns the town after a record at a log sequence that holds a state.
func (rec *Record) Town(seq uint64, state town.State) Town {
	t := Town{
		Seq: seq, LoadedSeq: seq, State: state, Apply: rec.Apply, Paused: rec.Paused,
		Pending: rec.Pending, Policy: rec.Policy, Approvals: rec.Approvals,
	}
	if rec.Removed {
		t.State, t.Removed = town.State{}, &state
	}
	return t
}
