package machine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/wire"
)

// Only a run whose command is known not to be applied is retried
// (docs/adr/0026-a-retry-is-another-run.md); each refusal has the run's end.
func TestFailedRun_Refusals(t *testing.T) {
	t.Parallel()
	ended := func(kind machine.Kind, result string) *machine.Record {
		return &machine.Record{Kind: kind, Handoff: []byte(`{"handoffId":"h"}`),
			Result: []byte(result)}
	}
	failed := func(reason string) *machine.Record {
		return ended(machine.KindConcluded, `{"status":"failed","reasonCode":"`+reason+`"}`)
	}
	retried := func(rec *machine.Record) *machine.Record {
		rec.RetryOf = &apply.RetryOf{RunID: "run-1", LogSeq: 7}
		return rec
	}
	const stale = `{"status":"stale","reasonCode":"STALE_DECISION_EPOCH"}`
	for name, c := range map[string]struct {
		end     *machine.Record
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
			ended(machine.KindConcluded, `{"status":"executed","reasonCode":"EXECUTED"}`),
			wire.CodeRunNotRetryable, "nothing to retry"},
		"a duplicate": {
			ended(machine.KindRefused, `{"status":"duplicate","reasonCode":"DUPLICATE_HANDOFF"}`),
			wire.CodeRunNotRetryable, "repeated another run"},
		"stale": {ended(machine.KindRefused, stale), wire.CodeRunNotRetryable, "its key is free"},
		"a retry that was stale": {retried(ended(machine.KindRefused, stale)),
			wire.CodeRunNotRetryable, "run-1"},
		"waits for an approval": {
			ended(machine.KindAsked, `{"status":"rejected","reasonCode":"APPROVAL_REQUIRED"}`),
			wire.CodeRunNotRetryable, "its key is free"},
		"cancelled": {&machine.Record{Kind: machine.KindCancelled}, wire.CodeRunNotRetryable,
			"was cancelled"},
		"the run of a signal": {&machine.Record{Kind: machine.KindPause},
			wire.CodeRunNotRetryable, "a signal"},
		"a damaged result": {ended(machine.KindConcluded, `{"status":`), wire.CodeRunNotRetryable,
			"handoffctl fsck"},
	} {
		c.end.Run = &runlog.Run{}
		_, refusal, _ := machine.NewFailedRun("run-1", 7, c.end) // the handoff cannot be read: see below
		requireRefusal(t, refusal, c.code, c.message, name)
	}
	first := machine.FailedRun{RetryOf: apply.RetryOf{RunID: "run-1"}}
	requireRefusal(t, first.CheckReceipt(&dedupe.Receipt{RunID: "run-1"}), "", "", "its own receipt")
	requireRefusal(t, first.CheckReceipt(&dedupe.Receipt{RunID: "run-2"}), wire.CodeRunRetried, "run-2",
		"retried before")
	requireRefusal(t, first.CheckReceipt(nil), wire.CodeRunNotRetryable, "its key is free", "expired")
	requireRefusal(t, machine.RefuseSecondRetry("run-2"), wire.CodeRunRetried, "in run run-2", "in hand")
}

// requireRefusal checks a refusal; code "" means none.
func requireRefusal(t *testing.T, r *approval.SignalRefusal, code wire.Code, message, name string) {
	t.Helper()
	if code == "" {
		require.Nil(t, r, name)
		return
	}
	require.NotNil(t, r, name)
	require.Equal(t, code, r.Code, name)
	require.Contains(t, r.Message, message, name)
}

// A run that may be retried comes with everything for the next run: the handoff as it was sent, its
// town, its trace, and the record that is retried. A refusal has its reason. A handoff that cannot be read
// is no refusal.
func TestNewFailedRun(t *testing.T) {
	t.Parallel()
	end := logtest.Unreached(t)
	got, refusal, err := machine.NewFailedRun("run-1", 7, end)
	require.NoError(t, err)
	require.Nil(t, refusal)
	require.Equal(t, apply.RetryOf{RunID: "run-1", LogSeq: 7}, got.RetryOf)
	require.Equal(t, end.TownID, got.TownID)
	require.Equal(t, end.Run.Trace, got.Trace)
	encoded, err := got.Handoff.MarshalWire()
	require.NoError(t, err)
	require.JSONEq(t, string(end.Handoff), string(encoded))

	executed, damaged := logtest.Unreached(t), logtest.Unreached(t)
	executed.Result = []byte(`{"status":"executed","reasonCode":"EXECUTED"}`)
	damaged.Handoff = []byte(`{}`)
	for _, c := range []struct {
		seq             uint64
		end             *machine.Record
		message, townID string
	}{
		{0, nil, "the engine has not ended the run", ""},
		{9, nil, "the log does not keep the end", ""},
		{7, executed, "nothing to retry", executed.TownID},
	} {
		failed, refusal, err := machine.NewFailedRun("run-1", c.seq, c.end)
		require.NoError(t, err, c.message)
		requireRefusal(t, refusal, wire.CodeRunNotRetryable, c.message, c.message)
		require.Equal(t, c.townID, failed.TownID, c.message)
		require.Nil(t, failed.Handoff, c.message)
	}
	_, refusal, err = machine.NewFailedRun("run-1", 7, damaged)
	require.ErrorContains(t, err, "the handoff at log sequence 7")
	require.Nil(t, refusal)
}
