package fsck

import (
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// seenEvents has the values that no two events of a run share: their ids, and the parts of their
// idempotency keys that differ within a run.
type seenEvents struct {
	ids  map[string]bool
	keys map[eventKey]bool
}

type eventKey struct {
	event   runevents.EventType
	step    string
	attempt int64
}

func newSeenEvents() seenEvents {
	return seenEvents{ids: map[string]bool{}, keys: map[eventKey]bool{}}
}

func (v *Verdict) noRun() { v.want("the record has no run", "events", "") }

// checkEvents checks the events of a record by themselves, and reports whether there are any.
func (v *Verdict) checkEvents(run *runevents.Run, seen seenEvents) bool {
	if run == nil || len(run.Events) == 0 {
		v.noRun()
		return false
	}
	v.checkPlace(run)
	for i := range run.Events {
		e := &run.Events[i]
		key := eventKey{e.EventType, e.StepID, e.LogicalAttemptID}
		switch {
		case seen.ids[e.EventID]:
			v.want("two events have one id", "", eventText(run, i)+" "+e.EventID)
		case seen.keys[key]:
			v.want("two events have one idempotency key", "", eventText(run, i))
		case !runevents.IsID(e.EventID):
			v.want("the id of an event is not a UUID v4", "", eventText(run, i)+" "+e.EventID)
		}
		seen.ids[e.EventID], seen.keys[key] = true, true
		_, err := time.Parse(time.RFC3339, e.EmittedAt)
		if err != nil || !strings.HasSuffix(e.EmittedAt, "Z") {
			v.want("the time of an event is not RFC 3339 in UTC",
				"", eventText(run, i)+" "+e.EmittedAt)
		}
		if err := keyFields(run, e).Validate(); err != nil {
			v.want("an event has no idempotency key", "", err.Error())
		}
	}
	return true
}

// checkPlace checks that the header names the run, and that its events have a place in it.
func (v *Verdict) checkPlace(run *runevents.Run) {
	v.want("the header does not name the run", run.RunID, v.message.Headers().Get(wire.RunIDHeader))
	if run.FirstSeq < 1 {
		v.want("the run's events have no runSeq", "1 or later", Text(run.FirstSeq))
	}
}

// checkRunID checks the id of a run of the engine's.
func (v *Verdict) checkRunID(run *runevents.Run) {
	if !runevents.IsID(run.RunID) {
		v.want("the id of the run is not a UUID v4", "", run.RunID)
	}
}

// keyFields returns the fields that the idempotency key of an event hashes.
func keyFields(run *runevents.Run, e *runevents.Event) runevents.KeyFields {
	return runevents.KeyFields{
		RunID: run.RunID, StepID: e.StepID, LogicalAttemptID: e.LogicalAttemptID,
		EventType: e.EventType, PlanID: run.PlanID, PlanVersion: run.PlanVersion,
	}
}

func eventText(run *runevents.Run, i int) string {
	return eventTextAt(run.FirstSeq+int64(i), &run.Events[i])
}

func eventTextAt(runSeq int64, e *runevents.Event) string {
	what := "runSeq " + Text(runSeq) + ", " + strings.TrimSpace(string(e.EventType)+" "+e.StepID)
	if e.LogicalAttemptID != 1 {
		what += " " + Text(e.LogicalAttemptID)
	}
	return what
}
