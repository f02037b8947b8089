package runevents

import (
	"context"
	"fmt"
)

// StateStore is where a projector reads a run again: the truth that the bus follows.
// Implementations are safe for concurrent use.
type StateStore interface {
	// Events returns all records of the run whose runSeq is above afterSeq, in any order; none for
	// a run that is not known. The error wraps ErrDiscarded when some of them were discarded.
	Events(ctx context.Context, runID string, afterSeq int64) ([]Record, error)
	// Snapshot returns the latest stored snapshot of the run whose LastEventSeq is not above
	// atMost; ok is false when there is none. A store without snapshots always says so.
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

// DetectNonContiguous reports whether nextSeq skips something after lastSeq. That is never a loss,
// since gaps are natural: it asks for a resync (v1, sections 1.0 and 1.5).
func DetectNonContiguous(lastSeq, nextSeq int64) bool { return nextSeq > lastSeq+1 }

// Resync reads a run from the store and projects it, with the alerts of what it read. It does not
// judge whether the watermark advanced, which is the caller's to compare. The errors are the
// store's, ErrResyncMode, ErrOtherRun and ErrNoRunSeq.
//
// FROM_SNAPSHOT goes on from the snapshot that the store has, with the events after that snapshot's
// own watermark, so that nothing between it and SnapshotSeq is missed. It falls back to FULL when
// the store has none, or one that is not what was asked for.
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
