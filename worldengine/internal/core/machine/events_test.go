package machine

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/messages"
)

// Rewrite is for the scenarios too, whose package is another one.
var Rewrite = flag.Bool("rewrite", false, "write testdata/*.txt and testdata/runs/*.golden anew")

// fixedProducer returns a producer with fixed clock and ids: each reading of the clock is 1 ms
// later, and ids count.
func fixedProducer(h *handoff.Handoff) *runlog.Producer {
	ids, ticks := 0, 0
	newID := func() string {
		ids++
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", ids)
	}
	return runlog.NewProducer(runevents.Identity{
		RunID: newID(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: h.ProposalID, PlanVersion: h.Proposal.SchemaVersion,
	}, runlog.Source{
		NewID: newID,
		Now: func() time.Time {
			ticks++
			return time.Date(2026, 2, 16, 10, 0, 0, ticks*1e6, time.UTC)
		},
	})
}

var persistedAt = time.Date(2026, 2, 16, 10, 0, 1, 0, time.UTC)

// story shows a run to people: request, result, every event.
func story(t *testing.T, h *handoff.Handoff, r *handoff.Result, run *runlog.Run) string {
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

// caseOf returns a case of the outcome table, its result, and a producer of its run.
func caseOf(t *testing.T, name string) (*handoff.Handoff, *handoff.Result, *runlog.Producer) {
	t.Helper()
	c := machinetest.Named(t, name)
	return c.Handoff, handoff.NewResult(c.Handoff, c.Want), fixedProducer(c.Handoff)
}

// TestEmitRun emits the run of every row of the outcome table, and of one that had to wait.
func TestEmitRun(t *testing.T) {
	t.Parallel()
	names := map[string]bool{"executed-queued": true}
	for _, c := range machinetest.Cases(t) {
		if !strings.HasPrefix(c.Name, "order-") {
			names[c.Name] = false
		}
	}
	for name, queued := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, r, p := caseOf(t, strings.TrimSuffix(name, "-queued"))
			require.NoError(t, EmitRun(p, h, r, RunStart{Queued: queued}))
			records := p.Run().Records(persistedAt)
			for i := range records {
				require.NoError(t, records[i].Validate())
			}
			_, alerts, err := runevents.Project(p.Run().RunID, records)
			require.NoError(t, err)
			require.Empty(t, alerts)

			file, got := filepath.Join("testdata", "runs", name+".golden"), story(t, h, r, p.Run())
			schemastest.Golden(t, file, got, *Rewrite)
		})
	}
	stored, err := filepath.Glob(filepath.Join("testdata", "runs", "*"))
	require.NoError(t, err)
	for _, file := range stored {
		require.Contains(t, names, strings.TrimSuffix(filepath.Base(file), ".golden"))
	}
}

// A run that cannot take an event returns an error: the engine never drops events silently.
func TestEmit_EventThatDoesNotFit(t *testing.T) {
	t.Parallel()
	h, r, p := caseOf(t, "executed")
	require.NoError(t, EmitRun(p, h, r, RunStart{}))
	_, _, other := caseOf(t, "executed")
	why := Cancellation{Reason: "too late"}
	for name, err := range map[string]error{
		"released":            emitReleased(p, 1, ""),
		"released for reason": emitReleased(p, 1, "asked already"),
		"cancelled":           emitCancelled(p, p.Status(), nil, why),
		"cancelled in hand":   emitCancelledInHand(p, 1, why),
		"cancelled twice": errors.Join(
			emitCancelled(other, runevents.RunStatusPaused, nil, why),
			emitCancelled(other, runevents.RunStatusPaused, nil, why)),
		"judged again": EmitRun(p, h, r, RunStart{}),
		"accepted":     EmitAccepted(p, h, &r.Evaluation, RunStart{}),
		"ended":        emitEnd(p, r, 1, nil, &apply.AttemptResult{At: persistedAt}),
		"a signal": EmitSignal(p, SignalPayload{
			Signal: SignalPause, ActorID: "ada"}, ""),
	} {
		require.Error(t, err, name)
	}
}

// The town of a run is in its start; another producer's run may have none, and any end.
func TestReadStarted_Town(t *testing.T) {
	t.Parallel()
	for started, want := range map[string]string{
		`{"townId":"t"}`: "t", `{}`: "", `{"townId":7}`: "", ``: "", `[]`: "",
	} {
		run := new(runevents.Snapshot)
		run.Metadata.Started = []byte(started)
		require.Equal(t, want, ReadStarted(run).TownID, started)
	}
	for ended, want := range map[string]handoff.Status{`{"status":"stale"}`: handoff.Stale, `{}`: "", `[]`: ""} {
		run := new(runevents.Snapshot)
		run.Metadata.Outcome = []byte(ended)
		require.Equal(t, want, ReadEnded(run).Status, ended)
	}
}

// Proposals and signals are the engine's plans, also if only planId or planVersion looks so.
func TestIsEnginePlan(t *testing.T) {
	t.Parallel()
	for plan, want := range map[[2]string]bool{
		{"proposal_1", "proposal.v2"}: true, {"proposal_1", "7"}: true, {"mine", "proposal.v2"}: true,
		{"signal", "signal.v1"}: true, {"signal", "7"}: true, {"mine", "signal.v1"}: true,
		{"mine", "7"}: false, {"", ""}: false,
	} {
		require.Equal(t, want, IsEnginePlan(plan[0], plan[1]), "%v", plan)
	}
}

// A log message that is no record of this version is refused, and so is a state without its hash.
func TestReadRecord_Damaged(t *testing.T) {
	t.Parallel()
	for body, says := range map[string]string{
		`{`:                               "not a commit record",
		`{"schemaVersion":"v0"}`:          `of version "v0"`,
		`{"schemaVersion":"v0","kind":7}`: "not a commit record",
		`{"schemaVersion":"` + RecordVersion + `"}`: "",
	} {
		rec, err := ReadRecord([]byte(body))
		if says != "" {
			require.ErrorContains(t, err, says)
			continue
		}
		require.NoError(t, err)
		_, err = rec.State("hash")
		require.ErrorContains(t, err, "the stored state")
		rec.Snapshot = machinetest.Cases(t)[0].State.Canonical
		_, err = rec.State("hash")
		require.ErrorContains(t, err, "but its message says hash")
	}
	for _, run := range []*runlog.Run{nil, {}} {
		_, err := SignalIn(run)
		require.ErrorContains(t, err, "no signal")
	}
	for _, kind := range Signals() {
		p := fixedProducer(machinetest.Cases(t)[0].Handoff)
		require.NoError(t, EmitSignal(p, SignalPayload{Signal: kind, ActorID: "ada"}, ""))
		said, err := SignalIn(p.Run())
		require.NoError(t, err)
		require.Equal(t, kind, said.Signal)
	}
}

// The hand-written JSON of a record has the members of the library's, whichever are set.
func TestRecord_MarshalJSON(t *testing.T) {
	t.Parallel()
	rules := town.DefaultRules()
	all := Record{SchemaVersion: RecordVersion, Kind: KindPut, TownID: "t", Binding: apply.RCON,
		Paused: &messages.PausedBy{SignalID: "s"}, Pending: &apply.Pending{Attempt: 3},
		Policy: &approval.Policy{}, Approvals: approval.List{{HandoffID: "h"}}, Removed: true,
		WorldPolicy: &approval.Policy{}, ActorID: "ada", RetryOf: &apply.RetryOf{RunID: "r"},
		Rules: &rules, Closing: true, Repair: &Repair{Restores: 7}, Snapshot: []byte(`{"a":1}`),
		Result: []byte(`{"b":2}`), Handoff: []byte(`{"c":3}`),
		Addition: &handoff.Addition{ActorID: "ada"}, Run: &runlog.Run{FirstSeq: 1}}
	for _, rec := range []*Record{&all, {SchemaVersion: RecordVersion, Kind: KindRunEvents}} {
		got, err := rec.MarshalJSON()
		require.NoError(t, err)
		type members Record
		want, err := json.Marshal((*members)(rec))
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got))
	}
}

// The end of an attempt without artifacts has the bytes of the state alone.
func TestApplied_Bytes(t *testing.T) {
	t.Parallel()
	hash, epoch := strings.Repeat("a", 64), int64(7)
	state := &handoff.WorldState{SnapshotHash: &hash, DecisionEpoch: &epoch}
	for i, left := range []apply.Artifacts{
		{}, {LeftOut: 2}, {References: []jsontext.Value{}},
		{References: []jsontext.Value{[]byte(`{"uri":"a"}`)}, LeftOut: 1},
	} {
		want, err := json.Marshal(appliedPayload{*state, left})
		require.NoError(t, err)
		got, err := json.Marshal(applied(state, left))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), fmt.Sprint(i))
	}
}

func TestSignal_WithDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, Signal{ActorID: "operator", DrainTimeout: 5 * time.Minute}, Signal{}.WithDefaults())
	given := Signal{ActorID: "ada", DrainTimeout: time.Second}
	require.Equal(t, given, given.WithDefaults())
}
