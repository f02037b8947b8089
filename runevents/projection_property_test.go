package runevents_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
)

// CI draws more: see .ci/run.
var drawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried if that takes long")

// oracle is the simplest projector, by the tests' tables: it applies the events in order, one at a
// time, and keeps all of them.
type oracle struct {
	run     runevents.RunStatus
	steps   map[string]runevents.StepStatus // by "step attempt"
	order   []string
	keys    map[[4]string]bool
	ignored []string
	causal  []string
	last    int64
}

func newOracle() *oracle {
	return &oracle{
		run: "PENDING", steps: map[string]runevents.StepStatus{}, keys: map[[4]string]bool{},
	}
}

func attemptOf(r *runevents.Record) string {
	return fmt.Sprintf("%s %d", r.StepID, max(r.LogicalAttemptID, 1))
}

func (o *oracle) stepStatus(attempt string) runevents.StepStatus {
	if status, ok := o.steps[attempt]; ok {
		return status
	}
	return "PENDING"
}

func (o *oracle) apply(r *runevents.Record) {
	o.last = r.RunSeq
	if attempted[r.EventType] == "" {
		return
	}
	key := [4]string{string(r.EventType), attemptOf(r)}
	if o.keys[key] {
		return
	}
	o.keys[key] = true
	if !r.EventType.IsStepLevel() {
		next, ok := runTransitions[o.run][r.EventType]
		if !ok {
			o.ignored = append(o.ignored, r.EventID)
			return
		}
		o.run = next
		return
	}
	attempt := attemptOf(r)
	now := o.stepStatus(attempt)
	ended := slices.Contains([]runevents.RunStatus{"COMPLETED", "FAILED", "CANCELLED"}, o.run)
	next, ok := stepTransitions[now][r.EventType]
	switch {
	case ended:
		o.ignored = append(o.ignored, r.EventID)
	case !ok:
		o.ignored = append(o.ignored, r.EventID)
		if now == "PENDING" {
			o.causal = append(o.causal, r.EventID)
		}
	default:
		if o.run == "PENDING" || o.run == "APPROVED" {
			o.causal = append(o.causal, r.EventID)
		}
		if _, known := o.steps[attempt]; !known {
			o.order = append(o.order, attempt)
		}
		o.steps[attempt] = next
	}
}

// requireAgreement holds a projection against the oracle.
func (o *oracle) requireAgreement(t *testing.T, s *runevents.Snapshot, alerts []runevents.Alert) {
	t.Helper()
	require.Equal(t, o.run, s.Status)
	require.Equal(t, o.last, s.LastEventSeq)
	require.Equal(t, o.ignored, s.Metadata.IgnoredEvents)
	require.Equal(t, len(o.ignored) > 0, s.Metadata.Consistency == runevents.Inconsistent)
	var order []string
	for _, step := range s.Steps {
		attempt := fmt.Sprintf("%s %d", step.StepID, step.LogicalAttemptID)
		order = append(order, attempt)
		require.Equal(t, o.steps[attempt], step.Status, attempt)
		require.Equal(t, step.Status != "SKIPPED", step.StartedAt != "")
		require.Equal(t, step.Status == "SUCCESS" || step.Status == "FAILED",
			step.CompletedAt != "")
	}
	require.Equal(t, o.order, order)
	require.Equal(t, o.run.Terminal(), s.CompletedAt != "")
	require.Equal(t, o.ignored, eventIDs(alerts, runevents.InvalidTransition))
	require.Equal(t, o.causal, eventIDs(alerts, runevents.CausalViolation))
}

func eventIDs(alerts []runevents.Alert, code runevents.AlertCode) (ids []string) {
	for _, a := range alerts {
		if a.Code == code {
			ids = append(ids, a.EventID)
		}
	}
	return ids
}

// anyStream is a run with mostly valid events, but also invalid and unknown ones, duplicates under
// new runSeqs, gaps, and keys of v1.
func anyStream(g *rand.Rand) []runevents.Record {
	o := newOracle()
	var records []runevents.Record
	seq := int64(0)
	for len(records) < 4+g.IntN(24) {
		event, step, attempt := allEvents[g.IntN(len(allEvents))], "", 1+g.Int64N(3)
		if event.IsStepLevel() {
			step = []string{"a", "b", "c"}[g.IntN(3)]
		}
		r := runevents.Record{Write: runeventstest.NewWrite(event, step, attempt),
			PersistedAt: runevents.Timestamp(persistedAt)}
		r.EmittedAt = runevents.Timestamp(persistedAt.Add(time.Duration(len(records)) * time.Second))
		if _, valid := runTransitions[o.run][r.EventType]; !valid &&
			!r.EventType.IsStepLevel() && g.IntN(5) > 0 {
			continue
		}
		if o.run == "PENDING" && r.EventType.IsStepLevel() && g.IntN(5) > 0 {
			continue
		}
		if r.EventType == "RunCompleted" && g.IntN(2) > 0 {
			continue
		}
		if seq++; g.IntN(6) == 0 {
			seq += 1 + g.Int64N(3)
		}
		r = again(r, seq)
		o.apply(&r)
		records = append(records, r)
	}
	return records
}

// someDelivery is a part of the records in any order, some of them more than once.
func someDelivery(g *rand.Rand, records []runevents.Record) (delivered []runevents.Record) {
	for _, r := range records {
		for range []int{0, 1, 1, 1, 2, 3}[g.IntN(6)] {
			delivered = append(delivered, r)
		}
	}
	g.Shuffle(len(delivered), func(i, j int) {
		delivered[i], delivered[j] = delivered[j], delivered[i]
	})
	return delivered
}

func deepCopy[T any](t testing.TB, v T) (copied T) {
	t.Helper()
	data, err := json.Marshal(&v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &copied))
	return copied
}

// Every event is met in every status of a run and of a step.
func TestProject_Oracle(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 1))
	met := map[string]bool{}
	for range 1500 * *drawnTimes {
		records := anyStream(g)
		o := newOracle()
		s, alerts := project(t, nil)
		for i, r := range records {
			prior := string(o.run)
			if r.EventType.IsStepLevel() && !o.run.Terminal() {
				prior = string(o.stepStatus(attemptOf(&r)))
			}
			ignored := len(o.ignored)
			o.apply(&r)
			next, more := incremental(t, s, records[i:i+1])
			if len(o.ignored) > ignored {
				requireIgnored(t, s, next, r, more[0], prior)
			}
			if attempted[r.EventType] != "" {
				met[string(r.EventType)+" in "+prior] = true
			}
			s, alerts = next, append(alerts, more...)
		}
		o.requireAgreement(t, &s, alerts)
	}
	for _, event := range allEvents {
		statuses := []string{"PENDING", "RUNNING", "SUCCESS", "FAILED", "SKIPPED", "COMPLETED", "CANCELLED"}
		if !event.IsStepLevel() {
			statuses = []string{"PENDING", "APPROVED", "RUNNING", "PAUSED", "COMPLETED", "FAILED",
				"CANCELLED"}
		}
		for _, status := range statuses {
			if attempted[event] != "" {
				require.True(t, met[string(event)+" in "+status], "%s in %s", event, status)
			}
		}
	}
}

// At any cut of a run, whether the snapshot was stored in between or not, with duplicates on either
// side, and in any order.
func TestIncremental_IsProject(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 2))
	for range 250 * *drawnTimes {
		records := anyStream(g)
		want, wantAlerts := project(t, records)
		s, alerts := project(t, nil)
		for at := 0; at < len(records); {
			n := at + g.IntN(len(records)-at+1)
			part := append(slices.Clone(records[at:n]), someDelivery(g, records[:n])...)
			g.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
			if g.IntN(2) == 0 {
				s = deepCopy(t, s)
			}
			next, more := incremental(t, s, part)
			s, at, alerts = next, n, append(alerts, more...)
		}
		require.Equal(t, want, s)
		require.Equal(t, wantAlerts, alerts)
	}
}

func TestIncremental_ChangesNoInput(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 3))
	for range 150 * *drawnTimes {
		records := anyStream(g)
		cut := g.IntN(len(records) + 1)
		s, _ := project(t, records[:cut])
		rest := someDelivery(g, records)
		was, had := deepCopy(t, s), deepCopy(t, rest)
		first, firstAlerts := incremental(t, s, rest)
		kept := deepCopy(t, first)
		require.Equal(t, was, s)
		require.Equal(t, had, rest)

		// Other events after the same snapshot change neither.
		other := parseRecords(t, "RunCancelled; StepStarted z #9; StepFailed a; RunPaused")
		for i := range other {
			other[i].RunSeq += s.LastEventSeq
		}
		incremental(t, s, other)
		require.Equal(t, was, s)
		require.Equal(t, kept, first)

		second, secondAlerts := incremental(t, s, rest)
		require.Equal(t, first, second, "and it is deterministic")
		require.Equal(t, firstAlerts, secondAlerts)
	}
}
