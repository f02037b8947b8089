package runevents

// Guard keeps the state of a run as its producer knows it. It refuses every event that a projector
// would ignore, and a decision about a signal before the run's start or after its end (RunEvents
// v2.0.1, section 5.3, layer 1). One goroutine uses it at a time.
type Guard struct {
	belief  Snapshot
	stopped map[stepAttempt]error
}

// NewGuard returns the guard of a run without events.
func NewGuard(runID string) *Guard {
	return &Guard{belief: NewSnapshot(runID), stopped: map[stepAttempt]error{}}
}

// Observe applies persisted events of the run. Within a call they must be in the order of runSeq. A
// later call may bring lower runSeqs, since the producer may learn of an event late. After
// ErrOtherRun or ErrNoRunSeq the guard is unchanged.
func (g *Guard) Observe(records ...Record) error {
	if err := checkRun(g.belief.RunID, records); err != nil {
		return err
	}
	for i := range records {
		g.belief, _ = reduce(g.belief, []Record{g.following(&records[i].Write)})
	}
	return nil
}

// Check returns *InvalidTransitionError if w is not valid as the run's next event. After that error
// Check refuses every later event of the same step attempt; if w has no stepId, every later event
// of the run itself. The producer has to stop there. Check does not apply w; call Observe once w is
// persisted.
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

// following returns w as the next record, without its payload: no transition depends on it.
func (g *Guard) following(w *Write) Record {
	return withoutPayload(Record{Write: *w, RunSeq: g.belief.LastEventSeq + 1})
}

// stepAttempt is a step attempt or, if stepID is "", the run.
type stepAttempt struct {
	stepID  string
	attempt int64
}
