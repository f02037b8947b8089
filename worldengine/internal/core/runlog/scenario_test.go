package runlog_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/runlog"
)

// TestScenarios plays testdata/scenarios. EVENTS are happenings. Inputs:
//
//	> new [tenant=T] [steps=S,…] [plan=P] [transitions]: a run without events, whose append authority
//	  has this policy
//	> engine|others EVENTS: events that the authority has stored
//	> append EVENTS: other producers ask the authority
//	> closing|goes-on: the engine is about to end the run, or not
//	> emit EVENTS, resume STATUS RUNSEQ [EVENTS]: of the producer
//	> check EVENTS: before another producer emits one of them
//	> project EVENTS: of the projector
func TestScenarios(t *testing.T) {
	t.Parallel()
	schemastest.Play(t, "testdata/scenarios/*.txt", *rewrite, func(t *testing.T) func(string) []string {
		s := &scenario{t: t}
		return func(input string) []string {
			s.output = nil
			verb, rest, _ := strings.Cut(input, " ")
			s.input(verb, rest)
			return s.output
		}
	})
}

// scenario is a run, and everybody who knows of it.
type scenario struct {
	t        *testing.T
	output   []string
	ids      int
	stored   int   // messages of the log
	seq      int64 // the last runSeq
	state    *runlog.State
	producer *runlog.Producer
	snapshot runevents.Snapshot
}

func (s *scenario) say(format string, args ...any) {
	s.output = append(s.output, strings.ReplaceAll(fmt.Sprintf(format, args...), runeventstest.Identity.RunID, "RUN"))
}

// fail says an error, with the index of the refused write.
func (s *scenario) fail(err error) bool {
	switch refused := err.(type) {
	case nil:
		return false
	case *runlog.OwnedError:
		s.say("error at %d, by %s: %v", refused.Index, refused.Member, err)
	case *runlog.TransitionError:
		s.say("error at %d: %v", refused.Index, err)
	default:
		s.say("error %v", err)
	}
	return true
}

func (s *scenario) input(verb, rest string) {
	switch verb {
	case "new":
		s.reset(strings.Fields(rest))
	case "engine", "others":
		_, err := s.state.Add(verb == "engine", s.records(rest)...)
		s.fail(err)
		s.say("open: %t", s.state.Open())
	case "append":
		s.append(rest)
	case "closing", "goes-on":
		s.state.SetClosing(verb == "closing")
	case "emit":
		for _, h := range happenings(s.t, rest) {
			e := runlog.Emission{Type: h.EventType, StepID: h.StepID, Attempt: h.LogicalAttemptID}
			if h.Payload != nil {
				e.Payload = h.Payload
			}
			s.fail(s.producer.Emit(e))
		}
		s.say("%s, %d events from %d", s.producer.Status(), len(s.producer.Run().Events),
			s.producer.Run().FirstSeq)
	case "resume":
		words := strings.SplitN(rest, " ", 3)
		var started []runlog.Event
		for _, h := range happenings(s.t, strings.Join(words[2:], "")) {
			started = append(started, h.Event)
		}
		next, err := strconv.ParseInt(words[1], 10, 64)
		require.NoError(s.t, err)
		s.producer.ResumeAt(runevents.RunStatus(words[0]), started...)
		s.producer.StartBatch(next)
	case "check":
		for _, w := range s.writes(rest) {
			if !s.fail(s.state.Check(&w)) {
				s.say("valid")
			}
		}
	case "project":
		s.project(s.records(rest))
	default:
		require.Fail(s.t, "no input is called so", verb)
	}
}

func (s *scenario) reset(words []string) {
	var policy runlog.AppendPolicy
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "tenant":
			policy.TenantID = value
		case "steps":
			policy.EngineSteps = strings.Split(value, ",")
		case "plan":
			policy.EnginePlan = func(planID, _ string) bool { return planID == value }
		case "transitions":
			policy.Transitions = true
		}
	}
	*s = scenario{t: s.t, state: runlog.NewState(runeventstest.Identity.RunID, policy),
		producer: runlog.NewProducer(runeventstest.Identity, source()),
		snapshot: runevents.NewSnapshot(runeventstest.Identity.RunID)}
}

func (s *scenario) writes(text string) (writes []runevents.Write) {
	for _, h := range happenings(s.t, text) {
		s.ids++
		w := runeventstest.NewWrite(h.EventType, h.StepID, h.LogicalAttemptID)
		w.EventID, w.Payload = runeventstest.NumberedID(s.ids), h.Payload
		data, err := json.Marshal(h.members)
		require.NoError(s.t, err)
		require.NoError(s.t, json.Unmarshal(data, &w))
		if h.members["idempotencyKey"] == "" {
			w = runeventstest.Sealed(w)
		}
		writes = append(writes, w)
	}
	return writes
}

func (s *scenario) records(text string) (records []runevents.Record) {
	s.stored++
	for i, w := range s.writes(text) {
		seq := happenings(s.t, text)[i].runSeq
		if seq < 0 {
			seq = s.seq + 1
		}
		s.seq = max(s.seq, seq)
		records = append(records, runevents.Record{Write: w, RunSeq: seq,
			PersistedAt: runevents.Timestamp(storedAt(s.stored))})
	}
	return records
}

// append says the place, the eventId and the persistedAt of each event.
func (s *scenario) append(text string) {
	writes := s.writes(text)
	plan, err := s.state.Plan(writes)
	if s.fail(err) {
		return
	}
	s.stored++
	for _, a := range plan.Results(storedAt(s.stored)) {
		known := map[bool]string{true: ", known", false: ""}[a.Idempotent]
		at, err := time.Parse(time.RFC3339, a.PersistedAt)
		require.NoError(s.t, err)
		id, err := strconv.Atoi(a.EventID[24:])
		require.NoError(s.t, err)
		s.say("%d: event %d, message %d%s", a.RunSeq, id, at.Second(), known)
	}
	records := plan.Run.Records(storedAt(s.stored))
	for i := range records {
		s.seq = max(s.seq, records[i].RunSeq)
	}
	_, err = s.state.Add(false, records...)
	require.NoError(s.t, err)
}

// project says the alerts, and the changed snapshot.
func (s *scenario) project(records []runevents.Record) {
	next, alerts, err := runevents.Incremental(s.snapshot, records)
	s.fail(err)
	s.snapshot = next
	for _, a := range alerts {
		said := fmt.Sprintf("alert %s %s: %s", a.Severity, a.Code, a.Message)
		if a.PriorState != "" {
			said += fmt.Sprintf("; %s to %s", a.PriorState, a.AttemptedState)
		}
		s.say("%s", said)
	}
	line := fmt.Sprintf("%s up to %d, %s", next.Status, next.LastEventSeq, next.Metadata.Consistency)
	for _, id := range next.Metadata.IgnoredEvents {
		line += ", without " + strings.TrimLeft(id[24:], "0")
	}
	for _, step := range next.Steps {
		line += fmt.Sprintf("; %s #%d %s", step.StepID, step.LogicalAttemptID, step.Status)
	}
	s.say("%s", line)
}
