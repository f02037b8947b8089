package runevents

import (
	"context"
	"fmt"
)

// StateStore is the source of truth from which a projector reads a run again. Implementations are
// safe for concurrent use.
type StateStore interface {
	// Events returns the run's records above afterSeq, in any order; none if the run is unknown.
	// The error wraps ErrDiscarded if some of them were discarded.
	Events(ctx context.Context, runID string, afterSeq int64) ([]Record, error)
	// Snapshot returns the run's latest stored snapshot whose LastEventSeq is at most atMost; ok is
	// false if there is none.
	Snapshot(ctx context.Context, runID string, atMost int64) (s Snapshot, ok bool, err error)
}

// ResyncMode is how a run is read again.
type ResyncMode string

// The modes of ExecutionSemantics v1, section 1.5.1.
const (
	// Full reads all events of the run from the beginning.
	Full ResyncMode = "FULL"
	// FromSnapshot reads a stored snapshot and the events after it.
	FromSnapshot ResyncMode = "FROM_SNAPSHOT"
)

// ResyncRequest asks for a run to be read again (v1, section 1.5.1).
type ResyncRequest struct {
	Mode  ResyncMode `json:"mode"`
	RunID string     `json:"runId"`
	// SnapshotSeq bounds the snapshot of FROM_SNAPSHOT: its LastEventSeq is not above it.
	SnapshotSeq int64 `json:"snapshotSeq,omitzero"`
}

// DetectNonContiguous reports whether nextSeq skips a runSeq after lastSeq. Gaps are natural: one
// is never a loss, but asks for a resync (v1, sections 1.0 and 1.5).
func DetectNonContiguous(lastSeq, nextSeq int64) bool { return nextSeq > lastSeq+1 }

// Resync reads a run from the store and projects it, with the alerts of its events. The caller
// checks whether the watermark advanced. The errors are the store's, ErrResyncMode, ErrOtherRun and
// ErrNoRunSeq.
//
// FROM_SNAPSHOT starts at the watermark of the store's snapshot, so that nothing between it and
// SnapshotSeq is missed. It falls back to FULL if the store has no snapshot, or a wrong one.
func Resync(
	ctx context.Context, store StateStore, request ResyncRequest,
) (Snapshot, []Alert, error) {
	base := NewSnapshot(request.RunID)
	switch request.Mode {
	case Full:
	case FromSnapshot:
		stored, ok, err := store.Snapshot(ctx, request.RunID, request.SnapshotSeq)
		if err != nil {
			return Snapshot{}, nil, fmt.Errorf("runevents: snapshot of run %q: %w",
				request.RunID, err)
		}
		if ok && stored.RunID == request.RunID && stored.LastEventSeq <= request.SnapshotSeq {
			base = stored
		}
	default:
		return Snapshot{}, nil, fmt.Errorf("%w: %q", ErrResyncMode, request.Mode)
	}
	events, err := store.Events(ctx, request.RunID, base.LastEventSeq)
	if err != nil {
		return Snapshot{}, nil, fmt.Errorf("runevents: events of run %q: %w", request.RunID, err)
	}
	return Incremental(base, events)
}
