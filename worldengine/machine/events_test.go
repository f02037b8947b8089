package machine

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/outcometest"
)

// Rewrite is for the scenarios too, whose package is another one.
var Rewrite = flag.Bool("rewrite", false, "write testdata/*.txt and testdata/runs/*.golden anew")

// fixedProducer returns a producer with fixed clock and ids: each reading of the clock is 1 ms
// later, and ids count.
func fixedProducer(h *handoff.Handoff) *runevents.Producer {
	ids, ticks := 0, 0
	newID := func() string {
		ids++
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", ids)
	}
	return runevents.NewProducer(runevents.Identity{
		RunID: newID(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: h.ProposalID, PlanVersion: h.Proposal.SchemaVersion,
	}, runevents.Source{
		NewID: newID,
		Now: func() time.Time {
			ticks++
			return time.Date(2026, 2, 16, 10, 0, 0, ticks*1e6, time.UTC)
		},
	})
}

var persistedAt = time.Date(2026, 2, 16, 10, 0, 1, 0, time.UTC)

// story shows a run to people: request, result, every event.
func story(t *testing.T, h *handoff.Handoff, r *handoff.Result, run *runevents.Run) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nhandoff   %s\nresult    %s\nstatus    %s, %s\n", h.Command, h.HandoffID,
		r.ResultID, r.Status, r.ReasonCode)
	fmt.Fprintf(&b, "run       %s\nplan      %s, %s\nof        %s, %s, %s\npersisted %s\n",
		run.RunID, run.PlanID, run.PlanVersion, run.TenantID, run.ProjectID, run.EnvironmentID,
		runevents.Timestamp(persistedAt))
	for _, record := range run.Records(persistedAt) {
		fmt.Fprintf(&b, "\n%2d %s\n", record.RunSeq,
			strings.TrimSpace(string(record.EventType)+" "+record.StepID))
		fmt.Fprintf(&b, "   at  %s\n   id  %s\n   key %s\n", record.EmittedAt, record.EventID,
			record.IdempotencyKey)
		if record.Payload != nil {
			payload := record.Payload.Clone()
			require.NoError(t, payload.Indent(jsontext.WithIndentPrefix("   "),
				jsontext.WithIndent("  ")))
			fmt.Fprintf(&b, "   %s\n", payload)
		}
	}
	return b.String()
}

// emitRun emits a whole run, of a handoff that had to wait or not.
func emitRun(p *runevents.Producer, h *handoff.Handoff, r *handoff.Result, waited bool) error {
	start := StartAtOnce
	if waited {
		start = StartQueued
	}
	return EmitRun(p, h, r, Begin{Start: start})
}

// TestEmitRun emits the run of every row of the outcome table, and of one that had to wait.
func TestEmitRun(t *testing.T) {
	t.Parallel()
	type courseCase struct {
		outcometest.Case
		queued bool
	}
	var courses []courseCase
	for _, v := range outcometest.Cases(t) {
		if strings.HasPrefix(v.Name, "order-") {
			continue
		}
		courses = append(courses, courseCase{Case: v})
		if v.Name == "executed" {
			v.Name = "executed-queued"
			courses = append(courses, courseCase{v, true})
		}
	}
	files := map[string]bool{}
	for _, v := range courses {
		file := filepath.Join("testdata", "runs", v.Name+".golden")
		files[file] = true
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			r := handoff.NewResult(v.Handoff, v.Want)
			p := fixedProducer(v.Handoff)
			require.NoError(t, emitRun(p, v.Handoff, r, v.queued))
			requireFaithful(t, r, p.Run(), v.queued)

			got := story(t, v.Handoff, r, p.Run())
			if *Rewrite {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "go test ./worldengine/machine -run TestEmitRun -rewrite "+
				"writes it")
			require.Equal(t, string(want), got)
		})
	}
	stored, err := filepath.Glob(filepath.Join("testdata", "runs", "*"))
	require.NoError(t, err)
	for _, file := range stored {
		require.True(t, files[file], "%s is of no case any more", file)
	}
}

// requireFaithful asserts that the events are valid and agree with the result.
func requireFaithful(t *testing.T, r *handoff.Result, run *runevents.Run, queued bool) {
	t.Helper()
	var course []string
	payloads := map[string]string{}
	for _, record := range run.Records(persistedAt) {
		data, err := jsonv2.Marshal(&record)
		require.NoError(t, err)
		_, err = schemas.Parse(schemas.RunEventRecord, data, schemas.Limits{})
		require.NoError(t, err, "%s", data)
		event := strings.TrimSpace(string(record.EventType) + " " + record.StepID)
		course = append(course, event)
		payloads[event] = string(record.Payload)
	}

	want := []string{"RunStarted"}
	if queued {
		want = []string{"RunQueued", "RunStarted"}
	}
	e := r.Evaluation
	skipped := fmt.Sprintf(`{"reason":"%s"}`, r.ReasonCode)
	for _, check := range []struct {
		step      string
		evaluated bool
		verdict   any
	}{
		{"duplicate-check", e.DuplicateCheck.Evaluated, e.DuplicateCheck},
		{"stale-check", e.StaleCheck.Evaluated, e.StaleCheck},
		{"precondition-check", e.Preconditions.Evaluated, e.Preconditions},
	} {
		if !check.evaluated {
			want = append(want, "StepSkipped "+check.step)
			require.JSONEq(t, skipped, payloads["StepSkipped "+check.step])
			continue
		}
		want = append(want, "StepStarted "+check.step, "StepCompleted "+check.step)
		verdict, err := json.Marshal(check.verdict)
		require.NoError(t, err)
		require.JSONEq(t, string(verdict), payloads["StepCompleted "+check.step])
	}
	end := "RunCompleted"
	switch r.Status {
	case handoff.Executed:
		want = append(want, "StepStarted apply", "StepCompleted apply")
		after, err := json.Marshal(r.WorldState)
		require.NoError(t, err)
		require.JSONEq(t, string(after), payloads["StepCompleted apply"])
	case handoff.Failed:
		want = append(want, "StepStarted apply", "StepFailed apply")
		require.Contains(t, payloads["StepFailed apply"], `"code":"`+string(r.ReasonCode)+`"`)
		end = "RunFailed"
	default:
		want = append(want, "StepSkipped apply")
		require.JSONEq(t, skipped, payloads["StepSkipped apply"])
	}
	require.Equal(t, append(want, end), course)
	require.JSONEq(t, fmt.Sprintf(`{"status":"%s","reasonCode":"%s","resultId":"%s"}`,
		r.Status, r.ReasonCode, r.ResultID), payloads[end])
}

// Any decision of an engine makes a valid run.
func TestEmitRun_Vectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "vectors", "results.json"))
	require.NoError(t, err)
	var vectors []struct {
		Name            string
		Handoff, Result json.RawMessage
	}
	require.NoError(t, json.Unmarshal(raw, &vectors))
	require.NotEmpty(t, vectors)
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			h, err := handoff.Parse(vector.Handoff, schemas.Limits{})
			require.NoError(t, err)
			r, err := handoff.ParseResult(vector.Result, schemas.Limits{})
			require.NoError(t, err)
			p := fixedProducer(h)
			require.NoError(t, emitRun(p, h, r, true))
			requireFaithful(t, r, p.Run(), true)
		})
	}
}

func TestEmitRun_FirstError(t *testing.T) {
	t.Parallel()
	v := outcometest.Cases(t)[0]
	r := handoff.NewResult(v.Handoff, v.Want)
	p := fixedProducer(v.Handoff)
	require.NoError(t, emitRun(p, v.Handoff, r, false))
	told := len(p.Run().Events)
	require.ErrorContains(t, emitRun(p, v.Handoff, r, false), "the run is COMPLETED, so RunStarted")
	require.Len(t, p.Run().Events, told)
}
