package index

import (
	"context"

	"github.com/nats-io/nats.go"
)

// compactRows is how many rows an index has at least that compacts itself.
const compactRows = 100_000

// Compact drops the rows of messages that the log has forgotten, if they are more than half of many
// rows. It builds the index anew beside the one in use. The index calls it by itself.
func (ix *Index) Compact(ctx context.Context) error {
	counter, counts := ix.config.Source.(Counter)
	rows := uint64(ix.Counts().Rows)
	if !counts || rows <= compactRows {
		return nil
	}
	messages, err := counter.Messages(ctx)
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
	fresh := newState(0)
	err := ix.config.Source.EachAfter(ctx, 0,
		func(seq uint64, subject string, header nats.Header) error {
			e := newEntry(seq, subject, header)
			fresh.add(&e)
			return nil
		})
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
