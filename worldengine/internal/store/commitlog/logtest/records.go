package logtest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// RunOf returns the identity of a new run of a handoff.
func RunOf(h *handoff.Handoff) runevents.Identity {
	return runevents.Identity{
		RunID: uuid.NewString(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: h.ProposalID, PlanVersion: h.Proposal.SchemaVersion,
	}
}

// Judged returns the record of a case's handoff, and the state of its town after it.
func Judged(t testing.TB, c *machinetest.Case) (*machine.Record, town.State) {
	t.Helper()
	in := &machine.Input{TownID: c.Handoff.Proposal.TownID, At: time.Now().UTC(),
		Event: &machine.Judge{Handoff: c.Handoff, Prior: c.Prior, Run: RunOf(c.Handoff)}}
	for range in.Event.MaxIDs() {
		in.IDs = append(in.IDs, uuid.NewString())
	}
	out, err := machine.Step(machine.Town{State: c.State}, in,
		&machine.Settings{Rules: new(town.DefaultRules()), Binding: apply.Local})
	require.NoError(t, err)
	if out.Record.Kind == machine.KindRefused {
		return out.Record, c.State
	}
	return out.Record, out.NextTown.State
}

// Commit commits a record after its town's last message, or stores the record of a refused run.
// change changes the town's entry before. Commit returns the log's last sequence.
func Commit(
	t testing.TB, l *records.Log, rec *machine.Record, change ...func(*machine.Town),
) uint64 {
	t.Helper()
	if rec.Kind == machine.KindRefused {
		require.NoError(t, l.CommitAside(t.Context(), rec,
			layout.RefusedSubject(l.World, wire.TownToken(rec.TownID)), nil))
	} else {
		after, err := l.Load(t.Context(), rec.TownID)
		require.NoError(t, err)
		guard := after.Seq
		for _, c := range change {
			c(&after)
		}
		require.NoError(t, l.CommitTown(t.Context(), rec, &after, guard))
	}
	end, err := l.End(t.Context())
	require.NoError(t, err)
	return end
}

// WithState returns a change of a town to a state.
func WithState(state town.State) func(*machine.Town) {
	return func(e *machine.Town) { e.State = state }
}

// NewProducer returns a producer of a run of the engine.
func NewProducer(run runevents.Identity) *runlog.Producer {
	return runlog.NewProducer(run, runlog.Source{Now: time.Now, NewID: uuid.NewString})
}

// Unreached is the record of the end of the run "run-1", which reached no plugin.
func Unreached(t testing.TB) *machine.Record {
	t.Helper()
	h := machinetest.Advance(t, "wall")
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return &machine.Record{
		Kind: machine.KindConcluded, TownID: h.Proposal.TownID, Handoff: encoded,
		Result: []byte(`{"status":"failed","reasonCode":"PLUGIN_UNAVAILABLE"}`),
		Run: &runlog.Run{Identity: runevents.Identity{
			RunID: "run-1", Trace: trace.Context{Parent: "00-0-0-01"}}},
	}
}
