package index

import (
	"context"
	"math"
)

// compactRows is the number of rows up to which an index is never compacted.
const compactRows = 100_000

// compact drops the rows of messages that the log has forgotten, if these are more than half of all
// rows. It builds a new index beside the one in use.
func (ix *Index) compact(ctx context.Context) error {
	rows := uint64(ix.Rows())
	if rows <= compactRows {
		return nil
	}
	messages, err := ix.config.Source.Messages(ctx)
	if err != nil || 2*messages >= rows {
		return err
	}
	ix.config.Logger.Info("the index is compacted", "rows", rows, "messages", messages)
	return ix.rebuild(ctx)
}

// rebuild replaces the state by one that is read from the log.
func (ix *Index) rebuild(ctx context.Context) error {
	ix.mu.Lock()
	ix.compacts = true
	ix.mu.Unlock()
	fresh, err := stateUpTo(ctx, ix.config.Source, math.MaxUint64)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	since := ix.since
	ix.compacts, ix.since = false, nil
	if err != nil {
		return err
	}
	for i := range since {
		if since[i].seq > fresh.position {
			fresh.add(&since[i])
		}
	}
	position := ix.s.position
	ix.s = fresh
	ix.advance(position)
	return nil
}
