package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
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
	return ix.Rebuild(ctx)
}

// Rebuild replaces the state by one that is read from the log. It returns an error, and changes
// nothing, if the log cannot be read, or with ErrKnowsMore.
func (ix *Index) Rebuild(ctx context.Context) error {
	fresh, began := newState(0), ix.Position()
	upTo, err := ix.config.Source.EachAfter(ctx, 0,
		func(seq uint64, subject string, header nats.Header) error {
			e := newEntry(seq, subject, header)
			fresh.add(&e)
			return nil
		})
	if err == nil && upTo < began {
		err = fmt.Errorf("the log could be read to sequence %d, and the index is at %d", upTo, began)
	}
	if err != nil {
		return err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	old := ix.state
	for n := old.firstAfter(max(began, fresh.position)); n <= old.count; n++ { // added meanwhile
		e := old.entry(old.row(n))
		fresh.insert(&e)
	}
	if err := fresh.checkKnown(old, ix.config.Source.Limits()); err != nil {
		return err
	}
	ix.state = fresh
	ix.advance(old.position)
	if ix.advanced != nil { // fresh may have messages that old lacked
		close(ix.advanced)
		ix.advanced = nil
	}
	return nil
}

// ErrKnowsMore means that the log lacks records that the index has, and the log must keep.
var ErrKnowsMore = errors.New("index: the log lacks records that the index has")

// checkKnown returns an ErrKnowsMore if a state that was read from the log lacks records that an older state has,
// and the log must keep: the log is damaged, and the older state knows more.
func (s *state) checkKnown(old *state, limits Limits) error {
	for n := range old.towns {
		had := old.chain(uint32(n))
		has := s.chain(s.townNumber(had.Town))
		if has.Newest < had.Newest || !has.Whole(limits) && had.Whole(limits) {
			return fmt.Errorf("%w: of town %s", ErrKnowsMore, had.Town)
		}
	}
	return nil
}
