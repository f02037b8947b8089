package records_test

import (
	"context"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
)

// hidden is a store that omits some messages, as NATS omits those that were changed on its disk.
type hidden struct {
	commitlog.Store
	seqs []uint64
}

func (h *hidden) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	if slices.Contains(h.seqs, seq) {
		return nil, nil
	}
	return h.Store.At(ctx, seq)
}

func (h *hidden) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	for {
		msg, err := h.Store.Next(ctx, subject, from)
		if msg == nil || err != nil || !slices.Contains(h.seqs, msg.Sequence) {
			return msg, err
		}
		from = msg.Sequence + 1
	}
}

// A town's history is read backwards, around unreadable messages.
func TestLog_Before(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	var seqs []uint64
	guard := uint64(0)
	for day := range int64(9) {
		guard = commit(t, l, day, guard)
		seqs = append(seqs, guard)
	}
	store := &hidden{Store: l.Store}
	l.Store = store
	for _, lost := range [][]uint64{nil, {seqs[4]}, seqs[2:6], seqs[:3], seqs[:8]} {
		store.seqs = lost
		want := slices.DeleteFunc(slices.Clone(seqs),
			func(seq uint64) bool { return slices.Contains(lost, seq) })
		slices.Reverse(want)
		var got []uint64
		msg, err := l.TownBefore(t.Context(), "t", seqs[8]+1)
		for msg != nil {
			require.NoError(t, err)
			got = append(got, msg.Sequence)
			msg, err = l.Previous(t.Context(), msg)
		}
		require.NoError(t, err)
		require.Equal(t, want, got, "without %v", lost)
	}
	none, err := l.TownBefore(t.Context(), "t", seqs[0])
	require.NoError(t, err)
	require.Nil(t, none)
}

// counted is a store that counts its reads.
type counted struct {
	commitlog.Store
	reads int
}

func (c *counted) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	c.reads++
	return c.Store.Next(ctx, subject, from)
}

// A run cannot end before its tail is read, so the tail of a long run is not read message by message.
func TestLog_TailOfALongRun(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	const events = 90
	var guard, town uint64
	for n := range int64(events) {
		rec := &machine.Record{Kind: machine.KindAppended, TownID: "t", Run: &runlog.Run{
			Identity: runevents.Identity{RunID: "run"}, FirstSeq: 5 + n,
			Events: []runlog.Event{{EventType: "Told", LogicalAttemptID: 1 + n}},
		}}
		var err error
		guard, err = l.CommitRun(t.Context(), rec, guard)
		require.NoError(t, err)
		town = commit(t, l, n, town) // a message of another subject between two of the run
	}
	store := &counted{Store: l.Store}
	l.Store = store
	tail, err := l.Tail(t.Context(), "run", 4)
	require.NoError(t, err)
	require.Equal(t, []any{guard, int64(5 + events)}, []any{tail.Guard, tail.Next})
	require.Less(t, store.reads, events/2)
}
