package runs

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

// Only a run whose command is known not to be applied is retried
// (docs/adr/0026-a-retry-is-another-run.md); each refusal has the run's end.
func TestEnds_Retried(t *testing.T) {
	t.Parallel()
	ended := func(kind commitlog.Kind, result string) *commitlog.Record {
		return &commitlog.Record{Kind: kind, Handoff: []byte(`{"handoffId":"h"}`),
			Result: []byte(result)}
	}
	failed := func(reason string) *commitlog.Record {
		return ended(commitlog.KindHandoff, `{"status":"failed","reasonCode":"`+reason+`"}`)
	}
	retried := func(rec *commitlog.Record) *commitlog.Record {
		rec.RetryOf = &apply.RetryOf{RunID: "run-1", LogSeq: 7}
		return rec
	}
	const stale = `{"status":"stale","reasonCode":"STALE_DECISION_EPOCH"}`
	for name, c := range map[string]struct {
		end     *commitlog.Record
		code    wire.Code
		message string
	}{
		"nobody was reached":          {failed("PLUGIN_UNAVAILABLE"), "", ""},
		"a retry that reached nobody": {retried(failed("PLUGIN_UNAVAILABLE")), "", ""},
		"no answer in time": {failed("PLUGIN_TIMEOUT"), wire.CodeRunInDoubt,
			"apply it twice"},
		"an impossible state": {failed("PLUGIN_STATE_INVALID"), wire.CodeRunInDoubt,
			"put the town"},
		"a console in doubt": {failed("RCON_IN_DOUBT"), wire.CodeRunInDoubt, "look at the game"},
		"the game refused":   {failed("PROJECT_BLOCKED"), wire.CodeRunNotRetryable, "was refused"},
		"executed": {
			ended(commitlog.KindHandoff, `{"status":"executed","reasonCode":"EXECUTED"}`),
			wire.CodeRunNotRetryable, "nothing to retry"},
		"a duplicate": {
			ended(commitlog.KindRefused, `{"status":"duplicate","reasonCode":"DUPLICATE_HANDOFF"}`),
			wire.CodeRunNotRetryable, "repeated another run"},
		"stale": {ended(commitlog.KindRefused, stale), wire.CodeRunNotRetryable, "its key is free"},
		"a retry that was stale": {retried(ended(commitlog.KindRefused, stale)),
			wire.CodeRunNotRetryable, "run-1"},
		"waits for an approval": {
			ended(commitlog.KindAsked, `{"status":"rejected","reasonCode":"APPROVAL_REQUIRED"}`),
			wire.CodeRunNotRetryable, "its key is free"},
		"cancelled": {&commitlog.Record{Kind: commitlog.KindCancelled}, wire.CodeRunNotRetryable,
			"was cancelled"},
		"the run of a signal": {&commitlog.Record{Kind: commitlog.KindControl},
			wire.CodeRunNotRetryable, "a signal"},
		"a damaged result": {ended(commitlog.KindHandoff, `{"status":`), wire.CodeRunNotRetryable,
			"handoffctl fsck"},
	} {
		requireRefusal(t, refuseRetry(c.end), c.code, c.message, name)
	}
	first := Failed{RetryOf: apply.RetryOf{RunID: "run-1"}}
	requireRefusal(t, first.Judge(&dedupe.Receipt{RunID: "run-1"}), "", "", "its own receipt")
	requireRefusal(t, first.Judge(&dedupe.Receipt{RunID: "run-2"}), wire.CodeRunRetried, "run-2",
		"retried before")
	requireRefusal(t, first.Judge(nil), wire.CodeRunNotRetryable, "its key is free", "expired")
	requireRefusal(t, InHand("run-2"), wire.CodeRunRetried, "in run run-2", "in hand")
}

// requireRefusal checks a refusal; code "" means none.
func requireRefusal(t *testing.T, r *approval.Refusal, code wire.Code, message, name string) {
	t.Helper()
	if code == "" {
		require.Nil(t, r, name)
		return
	}
	require.NotNil(t, r, name)
	require.Equal(t, code, r.Code, name)
	require.Contains(t, r.Message, message, name)
}

var (
	errStore  = errors.New("no answer of the store")
	errEvents = errors.New("no answer of the events")
)

// oneMessage is a log's store that keeps one message, at sequence 7, and fails at sequence 8.
type oneMessage struct {
	commitlog.Store
	body []byte
}

func (s oneMessage) At(_ context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	switch seq {
	case 7:
		return &jetstream.RawStreamMsg{Sequence: seq, Data: s.body}, nil
	case 8:
		return nil, errStore
	}
	return nil, nil
}

// ends returns the Ends of a log that has the end of the run "run-1".
func ends(t *testing.T, end *commitlog.Record) *Ends {
	t.Helper()
	msg, err := commitlog.Encode(end, "any", nil)
	require.NoError(t, err)
	return &Ends{
		Log: &commitlog.Log{Store: oneMessage{body: msg.Data}}, Runs: fakeRuns{},
	}
}

// fakeRuns are runs that have ended, and some that cannot be read.
type fakeRuns struct{ Reader }

func (fakeRuns) EndedAt(_ context.Context, runID string) (uint64, error) {
	return map[string]uint64{"run-1": 7, "run-2": 7, "run-8": 8, "run-9": 9}[runID], unread(runID)
}

func (fakeRuns) Get(_ context.Context, runID string) (run runevents.Snapshot, err error) {
	if runID == "run-1" {
		run.Status = runevents.RunStatusCompleted
		run.Metadata.Started = []byte(`{"townId":"t"}`)
	}
	return run, unread(runID)
}

func unread(runID string) error {
	return map[string]error{"none": errEvents, "unknown": ErrUnknownRun,
		"damaged": fmt.Errorf("%w: row 1", ErrRunDamaged)}[runID]
}

// A run without a readable record of its end answers its client with that instead of waiting for
// ever. A log that does not answer is asked again.
func TestEnds_Lost(t *testing.T) {
	t.Parallel()
	e := ends(t, unreached(t))
	for runID, want := range map[string]struct {
		record, ended     bool
		townID            string
		recordErr, runErr error
	}{
		"run-1":   {record: true, ended: true, townID: "t"},
		"run-9":   {},
		"run-8":   {recordErr: commitlog.ErrLogUnavailable},
		"unknown": {},
		"damaged": {runErr: ErrRunDamaged},
		"none":    {recordErr: errEvents, runErr: errEvents},
	} {
		rec, err := e.Record(t.Context(), runID)
		require.ErrorIs(t, err, want.recordErr, runID)
		require.Equal(t, want.record, rec != nil, runID)
		ended, err := e.HasEnded(t.Context(), runID)
		require.ErrorIs(t, err, want.runErr, runID)
		require.Equal(t, want.ended, ended, runID)
		townID, err := e.TownOf(t.Context(), runID)
		require.ErrorIs(t, err, want.runErr, runID)
		require.Equal(t, want.townID, townID, runID)
	}
}

// unreached is the end of the run "run-1", which reached no plugin.
func unreached(t *testing.T) *commitlog.Record {
	t.Helper()
	h := machinetest.Advance(t, "wall")
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return &commitlog.Record{
		Kind: commitlog.KindHandoff, TownID: h.Proposal.TownID, Handoff: encoded,
		Result: []byte(`{"status":"failed","reasonCode":"PLUGIN_UNAVAILABLE"}`),
		Run: &runevents.Run{Identity: runevents.Identity{
			RunID: "run-1", Trace: trace.Context{Parent: "00-0-0-01"}}},
	}
}

// A run that may be retried comes with everything for the next run: the handoff as it was sent, its
// town, its trace, and the record that is retried. A refusal has its reason. A read error is no
// refusal, since the run's end is unknown.
func TestEnds_Failed(t *testing.T) {
	t.Parallel()
	end := unreached(t)
	got, refusal, err := ends(t, end).Failed(t.Context(), "run-1")
	require.NoError(t, err)
	require.Nil(t, refusal)
	require.Equal(t, apply.RetryOf{RunID: "run-1", LogSeq: 7}, got.RetryOf)
	require.Equal(t, end.TownID, got.TownID)
	require.Equal(t, end.Run.Trace, got.Trace)
	encoded, err := got.Handoff.MarshalWire()
	require.NoError(t, err)
	require.JSONEq(t, string(end.Handoff), string(encoded))

	executed, damaged := unreached(t), unreached(t)
	executed.Result = []byte(`{"status":"executed","reasonCode":"EXECUTED"}`)
	damaged.Handoff = []byte(`{}`)
	for _, c := range []struct {
		end                    *commitlog.Record
		runID, message, townID string
	}{
		{end, "unheard-of", "the engine has not ended the run", ""},
		{end, "run-9", "the log does not keep the end", ""},
		{executed, "run-1", "nothing to retry", executed.TownID},
	} {
		failed, refusal, err := ends(t, c.end).Failed(t.Context(), c.runID)
		require.NoError(t, err, c.message)
		requireRefusal(t, refusal, wire.CodeRunNotRetryable, c.message, c.runID)
		require.Equal(t, c.townID, failed.TownID, c.message)
		require.Nil(t, failed.Handoff, c.message)
	}
	withoutRun := unreached(t)
	withoutRun.Run = nil
	for _, c := range []struct {
		runID   string
		end     *commitlog.Record
		message string
	}{
		{"none", end, errEvents.Error()}, {"run-8", end, errStore.Error()},
		{"run-2", end, "run-2 name log sequence 7 for its end, which has another run"},
		{"run-1", withoutRun, "handoffctl fsck"},
		{"run-1", damaged, "the handoff at log sequence 7"},
	} {
		_, refusal, err := ends(t, c.end).Failed(t.Context(), c.runID)
		require.ErrorContains(t, err, c.message)
		require.Nil(t, refusal, c.runID)
	}
}
