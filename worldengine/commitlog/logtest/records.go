package logtest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/outcometest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// RunOf returns the identity of a new run of a handoff.
func RunOf(h *handoff.Handoff) runevents.Identity {
	return runevents.Identity{
		RunID: uuid.NewString(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: h.ProposalID, PlanVersion: h.Proposal.SchemaVersion,
	}
}

// Judged returns the record of a case's handoff, judged by the table, and the state after it.
func Judged(t testing.TB, c *outcometest.Case) (*commitlog.Record, town.State) {
	t.Helper()
	result, after := handoff.NewResult(c.Handoff, c.Want), c.State
	rec := &commitlog.Record{Kind: commitlog.KindRefused, TownID: c.Handoff.Proposal.TownID}
	if result.Accepted {
		rec.Kind = commitlog.KindHandoff
	}
	if result.Executed {
		after, _ = town.DefaultRules().Apply(c.State.Snapshot, &c.Handoff.Proposal)
	}
	var err error
	rec.Result, err = result.MarshalWire()
	require.NoError(t, err)
	rec.Handoff, err = c.Handoff.MarshalWire()
	require.NoError(t, err)
	p := NewProducer(RunOf(c.Handoff))
	require.NoError(t, machine.EmitRun(p, c.Handoff, result, machine.Begin{}))
	rec.Run = p.Run()
	return rec, after
}

// Accept commits that a game is applying a handoff, accepted in a state of its town, and returns
// the pending command. It draws the ids of later events after change.
func Accept(
	t testing.TB, l *commitlog.Log, state town.State, h *handoff.Handoff,
	change ...func(*apply.Pending),
) *apply.Pending {
	t.Helper()
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	expected, reason := town.DefaultRules().Apply(state.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	p := NewProducer(RunOf(h))
	evaluation := machine.Check(h, nil, state).Outcome.Evaluation
	require.NoError(t, machine.EmitAccepted(p, h, &evaluation, machine.Begin{}))
	now := time.Now().UTC()
	pending := &apply.Pending{
		Via: apply.Plugin, Handoff: encoded, Expected: expected.Canonical,
		Run: p.Run().Identity, Emitted: int64(len(p.Run().Events)), Attempt: 1,
		Accepted: now, NotBefore: now, Deadline: now.Add(time.Minute),
	}
	for _, c := range change {
		c(pending)
	}
	pending.EventIDs, err = runevents.DrawIDs(pending.Run, uuid.NewString, nil,
		machine.ToCome(pending.Attempt)...)
	require.NoError(t, err)
	rec := &commitlog.Record{Kind: commitlog.KindPending, TownID: h.Proposal.TownID, Run: p.Run()}
	Commit(t, l, rec, In(state), func(e *commitlog.Entry) { e.Pending = pending })
	return pending
}

// Commit commits a record behind its town's last message, with the town's entry changed by change,
// or stores a refused run's, and returns the log's last sequence.
func Commit(
	t testing.TB, l *commitlog.Log, rec *commitlog.Record, change ...func(*commitlog.Entry),
) uint64 {
	t.Helper()
	if rec.Kind == commitlog.KindRefused {
		require.NoError(t, l.Refuse(t.Context(), rec,
			wire.RefusedSubject(l.World, wire.TownToken(rec.TownID)), nil))
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

// In returns a change of a town to a state.
func In(state town.State) func(*commitlog.Entry) {
	return func(e *commitlog.Entry) { e.State = state }
}

// NewProducer returns a producer of a run of the engine.
func NewProducer(run runevents.Identity) *runevents.Producer {
	return runevents.NewProducer(run, runevents.Source{Now: time.Now, NewID: uuid.NewString})
}
