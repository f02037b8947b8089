package runevents

// Guard is the state that the producer of a run believes the run to be in. It refuses every event
// that a projector would ignore from there, and a decision about a signal outside of the time in
// which the run goes on (RunEvents v2.0.1, section 5.3, layer 1). One goroutine uses it at a time.
type Guard struct {
	belief  Snapshot
	stopped map[stepAttempt]error
}

// NewGuard returns the guard of a run without events.
func NewGuard(runID string) *Guard {
	return &Guard{belief: NewSnapshot(runID), stopped: map[stepAttempt]error{}}
}

// Observe takes in events that the run has, in the order of their runSeq within one call. The
// producer may learn of an event after later ones, so a later call may bring lower runSeqs. The
// error is ErrOtherRun or ErrNoRunSeq; then the guard is unchanged.
func (g *Guard) Observe(records ...Record) error {
	if err := checkRun(g.belief.RunID, records); err != nil {
		return err
	}
	for i := range records {
		g.belief, _ = reduce(g.belief, []Record{g.following(&records[i].Write)})
	}
	return nil
}

// Check returns nil where w is valid as the next event of the run, and *InvalidTransitionError
// where it is not. After an error it returns the same error for every other event of that step
// attempt, or of the run when w has no stepId: the producer has to stop there. It does not take w
// in; the caller does, by Observe, once w is persisted.
func (g *Guard) Check(w *Write) error {
	entity := stepAttempt{stepID: w.StepID}
	if w.StepID != "" {
		entity.attempt = w.LogicalAttemptID
	}
	if err := g.stopped[entity]; err != nil {
		return err
	}
	_, invalid, err := advance(g.belief, w, g.belief.LastEventSeq+1)
	if err != nil {
		return err
	}
	if _, ok := nextEmitted(g.belief.Status, w.EventType); !ok && w.EventType.ofSignal() {
		invalid = &Alert{PriorState: string(g.belief.Status)}
	}
	if invalid == nil {
		return nil
	}
	expected := validIn(w.EventType, w.StepID)
	if w.StepID != "" && g.belief.Status.Terminal() {
		expected = string(RunRunning) + " or " + string(RunIsPaused)
	}
	err = &InvalidTransitionError{
		StepID: w.StepID, Expected: expected, Actual: invalid.PriorState, Attempted: w.EventType,
	}
	g.stopped[entity] = err
	return err
}

// following returns w as the record that follows what is believed. Its payload is left out, since
// no transition depends on it.
func (g *Guard) following(w *Write) Record {
	return withoutPayload(Record{Write: *w, RunSeq: g.belief.LastEventSeq + 1})
}

// stepAttempt is a step attempt, or the run with stepID "".
type stepAttempt struct {
	stepID  string
	attempt int64
}
