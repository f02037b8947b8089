package retry

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/outcometest"
	"worldengine/worldengine/wire"
)

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

// reader returns a Reader of the run "run-1", whose end in the log is a record.
func reader(t *testing.T, end *commitlog.Record) *Reader {
	t.Helper()
	msg, err := commitlog.Encode(end, "any", nil)
	require.NoError(t, err)
	return &Reader{
		Log: &commitlog.Log{Store: oneMessage{body: msg.Data}},
		Ended: func(_ context.Context, runID string) (uint64, error) {
			return map[string]uint64{"run-1": 7, "run-2": 7, "run-8": 8, "run-9": 9}[runID],
				map[bool]error{true: errEvents}[runID == "none"]
		},
	}
}

// unreached is the end of the run "run-1", which reached no plugin.
func unreached(t *testing.T) *commitlog.Record {
	t.Helper()
	h := outcometest.Advance(t, "wall")
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return &commitlog.Record{
		Kind: commitlog.KindHandoff, TownID: h.Proposal.TownID, Handoff: encoded,
		Result: []byte(`{"status":"failed","reasonCode":"PLUGIN_UNAVAILABLE"}`),
		Run: &runevents.Run{
			Identity: runevents.Identity{
				RunID: "run-1", Trace: trace.Context{Parent: "00-0-0-01"}}},
	}
}

// A run that may be retried comes with everything for the next run: the handoff as it was sent, its
// town, its trace, and the record that is retried.
func TestARunThatFailed(t *testing.T) {
	t.Parallel()
	end := unreached(t)
	got, refusal, err := reader(t, end).Failed(t.Context(), "run-1")
	require.NoError(t, err)
	require.Nil(t, refusal)
	require.Equal(t, apply.RetryOf{RunID: "run-1", LogSeq: 7}, got.RetryOf)
	require.Equal(t, end.TownID, got.TownID)
	require.Equal(t, end.Run.Trace, got.Trace)
	encoded, err := got.Handoff.MarshalWire()
	require.NoError(t, err)
	require.JSONEq(t, string(end.Handoff), string(encoded))
}

// A run's end is the record that its events name; if the log lost it, or cannot be read, there is
// no other.
func TestTheEndOfARun(t *testing.T) {
	t.Parallel()
	r := reader(t, unreached(t))
	rec, seq, err := r.End(t.Context(), "run-1")
	require.NoError(t, err)
	require.Equal(t, "run-1", rec.Run.RunID)
	require.Equal(t, uint64(7), seq)

	rec, seq, err = r.End(t.Context(), "unheard-of")
	require.NoError(t, err)
	require.Nil(t, rec)
	require.Zero(t, seq)

	rec, seq, err = r.End(t.Context(), "run-9")
	require.NoError(t, err, "the log does not keep it any more")
	require.Nil(t, rec)
	require.Equal(t, uint64(9), seq)

	_, _, err = r.End(t.Context(), "run-8")
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.ErrorIs(t, err, errStore)
	_, _, err = r.End(t.Context(), "none")
	require.ErrorIs(t, err, errEvents)

	_, _, err = r.End(t.Context(), "run-2")
	require.ErrorContains(t, err, "run-2 name log sequence 7 for its end, which has another run")
	withoutRun := unreached(t)
	withoutRun.Run = nil
	_, _, err = reader(t, withoutRun).End(t.Context(), "run-1")
	require.ErrorContains(t, err, "handoffctl fsck")
}

// A refusal has its reason; a read error is no refusal, since the run's end is unknown.
func TestRunsThatAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	executed, damaged := unreached(t), unreached(t)
	executed.Result = []byte(`{"status":"executed","reasonCode":"EXECUTED"}`)
	damaged.Handoff = []byte(`{}`)
	for _, c := range []struct {
		end         *commitlog.Record
		runID, says string
		townID      string
	}{
		{unreached(t), "unheard-of", "the run has no end", ""},
		{unreached(t), "run-9", "the log does not keep the end", ""},
		{executed, "run-1", "nothing to retry", executed.TownID},
	} {
		failed, refusal, err := reader(t, c.end).Failed(t.Context(), c.runID)
		require.NoError(t, err, c.says)
		require.NotNil(t, refusal, c.says)
		require.Equal(t, wire.CodeRunNotRetryable, refusal.Code)
		require.Contains(t, refusal.Message, c.says)
		require.Equal(t, c.townID, failed.TownID, c.says)
		require.Nil(t, failed.Handoff, c.says)
	}
	for runID, end := range map[string]*commitlog.Record{
		"none": unreached(t), "run-8": unreached(t), "run-2": unreached(t), "run-1": damaged,
	} {
		_, refusal, err := reader(t, end).Failed(t.Context(), runID)
		require.Error(t, err, runID)
		require.Nil(t, refusal, runID)
	}
}

// Of one run's retries the first begins; the others learn its run.
func TestARetryInHand(t *testing.T) {
	t.Parallel()
	refusal := InHand("run-2")
	require.Equal(t, wire.CodeRunRetried, refusal.Code)
	require.Contains(t, refusal.Message, "in run run-2")
}
