package runlog

import (
	"cmp"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/trace"
)

// RecordsJSON returns the JSON of each of the run's Records. The error is about a string that is
// not valid UTF-8.
func (r *Run) RecordsJSON(persistedAt time.Time) (all [][]byte, err error) {
	records := r.Records(persistedAt)
	all = make([][]byte, len(records))
	for i := range records {
		if all[i], err = json.Marshal(&records[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// AppendJSON appends the JSON of the run as the commit log stores it. The JSON is the same as
// json.Marshal's; AppendJSON exists because it is faster, and every commit has a run. The error is
// about a string that is not valid UTF-8.
func (r *Run) AppendJSON(b []byte) ([]byte, error) {
	w := objectWriter{b: b}
	w.text(`{"runId":`, r.RunID)
	w.text(`,"tenantId":`, r.TenantID)
	w.text(`,"projectId":`, r.ProjectID)
	w.text(`,"environmentId":`, r.EnvironmentID)
	w.text(`,"planId":`, r.PlanID)
	w.text(`,"planVersion":`, r.PlanVersion)
	if r.Trace != (trace.Context{}) {
		data, err := json.Marshal(r.Trace)
		w.b, w.err = append(append(w.b, `,"trace":`...), data...), cmp.Or(w.err, err)
	}
	if r.AppendedBy != "" {
		w.text(`,"appendedBy":`, r.AppendedBy)
	}
	w.number(`,"firstSeq":`, r.FirstSeq)
	w.b = append(w.b, `,"events":[`...)
	for i := range r.Events {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.event(&r.Events[i])
	}
	return append(w.b, "]}"...), w.err
}

// objectWriter appends members and keeps the first error.
type objectWriter struct {
	b   []byte
	err error
}

func (w *objectWriter) text(before, value string) {
	var err error
	if w.b, err = jsontext.AppendQuote(append(w.b, before...), value); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *objectWriter) number(before string, value int64) {
	w.b = strconv.AppendInt(append(w.b, before...), value, 10)
}

func (w *objectWriter) event(e *Event) {
	w.text(`{"eventId":`, e.EventID)
	w.text(`,"eventType":`, string(e.EventType))
	if e.StepID != "" {
		w.text(`,"stepId":`, e.StepID)
	}
	w.number(`,"logicalAttemptId":`, e.LogicalAttemptID)
	if e.EngineAttemptID != 0 {
		w.number(`,"engineAttemptId":`, e.EngineAttemptID)
	}
	w.text(`,"emittedAt":`, e.EmittedAt)
	if e.Payload != nil {
		w.b = append(append(w.b, `,"payload":`...), e.Payload...)
	}
	w.b = append(w.b, '}')
}
