package runevents_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// fakeStore is a state store in memory that can hide events, fail, and have snapshots.
type fakeStore struct {
	mu        sync.Mutex
	records   []runevents.Record
	hidden    func(*runevents.Record) bool
	snapshots []runevents.Snapshot
	err       error
	asked     []string
}

func storing(records ...runevents.Record) *fakeStore { return &fakeStore{records: records} }

func (f *fakeStore) Events(
	_ context.Context, runID string, afterSeq int64,
) (events []runevents.Record, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("events after %d", afterSeq))
	for _, r := range slices.Backward(f.records) {
		if r.RunID == runID && r.RunSeq > afterSeq && (f.hidden == nil || !f.hidden(&r)) {
			events = append(events, r)
		}
	}
	return events, f.err
}

func (f *fakeStore) Snapshot(
	_ context.Context, runID string, atMost int64,
) (best runevents.Snapshot, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("snapshot up to %d", atMost))
	for _, s := range f.snapshots {
		if s.RunID == runID && s.LastEventSeq <= atMost && s.LastEventSeq >= best.LastEventSeq {
			best, ok = s, true
		}
	}
	return best, ok, f.err
}

// calls returns the calls of the store since the last time.
func (f *fakeStore) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// upTo hides the records above seq.
func upTo(seq int64) func(*runevents.Record) bool {
	return func(r *runevents.Record) bool { return r.RunSeq > seq }
}

func TestDetectNonContiguous(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		last, next int64
		want       bool
	}{
		{0, 1, false}, {1, 2, false}, {10, 11, false}, {10, 12, true}, {0, 2, true},
		{3, 1000, true}, {5, 5, false}, {5, 4, false}, {5, 1, false}, {1<<53 - 2, 1<<53 - 1, false},
	} {
		require.Equal(t, row.want, runevents.DetectNonContiguous(row.last, row.next), "%d, %d",
			row.last, row.next)
	}
}

func TestBothModesGiveTheSame(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	want, _ := project(t, records)
	store := storing(records...)
	s, alerts, err := runevents.Resync(t.Context(), store,
		runevents.ResyncRequest{Mode: "FULL", RunID: identity.RunID})
	require.NoError(t, err)
	require.Empty(t, alerts)
	require.Equal(t, want, s)
	require.Equal(t, []string{"events after 0"}, store.calls())

	for _, row := range []struct {
		name    string
		stored  []int // watermarks of stored snapshots
		atMost  int64
		asksFor string
	}{
		{"the latest", []int{2, 4, 6}, 9, "events after 6"},
		{"none above what is asked for", []int{2, 4, 6}, 5, "events after 4"},
		{"that of the same seq", []int{2, 4, 6}, 2, "events after 2"},
		{"none low enough: FULL", []int{2, 4, 6}, 1, "events after 0"},
		{"no snapshots at all: FULL", nil, 9, "events after 0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			store := storing(records...)
			for _, n := range row.stored {
				at, _ := project(t, records[:n])
				store.snapshots = append(store.snapshots, deepCopy(t, at))
			}
			s, _, err := runevents.Resync(t.Context(), store, runevents.ResyncRequest{
				Mode: "FROM_SNAPSHOT", RunID: identity.RunID, SnapshotSeq: row.atMost,
			})
			require.NoError(t, err)
			require.Equal(t, want, s)
			require.Equal(t, []string{fmt.Sprintf("snapshot up to %d", row.atMost), row.asksFor},
				store.calls())
		})
	}
}

// wrongStore returns another snapshot than requested.
type wrongStore struct {
	*fakeStore
	snapshot runevents.Snapshot
}

func (w wrongStore) Snapshot(context.Context, string, int64) (runevents.Snapshot, bool, error) {
	return w.snapshot, true, nil
}

func TestASnapshotThatIsNotWhatWasAskedForIsNone(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	want, _ := project(t, records)
	other := want
	other.RunID, other.LastEventSeq = "another", 2
	for _, wrong := range []runevents.Snapshot{want, other} {
		store := wrongStore{storing(records...), wrong}
		s, _, err := runevents.Resync(t.Context(), store, runevents.ResyncRequest{
			Mode: "FROM_SNAPSHOT", RunID: identity.RunID, SnapshotSeq: 5,
		})
		require.NoError(t, err)
		require.Equal(t, want, s)
		require.Equal(t, []string{"events after 0"}, store.calls())
	}
}

func TestAResyncThatFails(t *testing.T) {
	t.Parallel()
	broken := storing(executedRun(t)...)
	broken.err = errors.New("the disk is gone")
	for _, mode := range []runevents.ResyncMode{runevents.Full, runevents.FromSnapshot} {
		_, _, err := runevents.Resync(t.Context(), broken, runevents.ResyncRequest{
			Mode: mode, RunID: identity.RunID,
		})
		require.ErrorIs(t, err, broken.err)
	}
	store := storing()
	_, _, err := runevents.Resync(t.Context(), store, runevents.ResyncRequest{
		Mode: "HALF", RunID: identity.RunID,
	})
	require.ErrorIs(t, err, runevents.ErrResyncMode)
	require.Empty(t, store.calls())

	mixed := executedRun(t)
	mixed[3].RunSeq = 0
	_, _, err = runevents.Resync(t.Context(), returning(mixed),
		runevents.ResyncRequest{Mode: "FULL", RunID: identity.RunID})
	require.ErrorIs(t, err, runevents.ErrNoRunSeq)
}

// returning is a store that returns these events for any request.
type returning []runevents.Record

func (r returning) Events(context.Context, string, int64) ([]runevents.Record, error) {
	return r, nil
}
func (r returning) Snapshot(
	context.Context, string, int64,
) (s runevents.Snapshot, ok bool, err error) {
	return s, false, nil
}
