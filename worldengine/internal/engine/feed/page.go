package feed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/commitlog"
)

// ErrInvalidCursor means that the cursor is no number, or lies beyond the end of the log.
var ErrInvalidCursor = errors.New("begin again without `after`, or with \"0\"")

// Bounds of one page.
const (
	pageBytes  = 1_000_000
	batch      = 256    // messages of one bulk read
	maxScanned = 5_000  // messages that are looked at
	maxRemoved = 10_000 // if more were removed, damaged ones count as removed
)

// Query says which commits to read.
type Query struct {
	After uint64
	Limit int
	// Towns are the tokens of the towns to read; nil for all commits, also those about no town.
	Towns []string
}

// matches reports whether a query includes a message. Every query includes a damaged message that
// does not name its town.
func (q *Query) matches(subject string, header nats.Header) bool {
	token := TownToken(subject, header)
	return q.Towns == nil || token == "" || slices.Contains(q.Towns, token)
}

// Page is a part of the log.
type Page struct {
	// Commits are the commit messages, in the order of the log.
	Commits []jsontext.Value `json:"commits"`
	// Cursor is the last message that was read.
	Cursor uint64 `json:"cursor,string"`
	// Gap is true if the log no longer keeps some messages between Query.After and Cursor that may be
	// about Query.Towns.
	Gap bool `json:"gap,omitzero"`
	// Idle is true if the page has no commit and no gap, and the log ends with Cursor.
	Idle bool `json:"-"`
}

// ParseCursor returns the sequence that a cursor stands for, or ErrInvalidCursor.
func ParseCursor(text string) (uint64, error) {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("feed: the cursor %q is no decimal number: %w", text, ErrInvalidCursor)
	}
	return seq, nil
}

// End returns the cursor of the log's end.
func (f *Feed) End(ctx context.Context) (uint64, error) { return f.config.Log.End(ctx) }

// Wait is Read, but while the page is Idle, it waits for commits until ctx is done. The index has
// to follow the log meanwhile.
func (f *Feed) Wait(ctx context.Context, q Query) (Page, error) {
	page := Page{Cursor: q.After, Idle: true}
	for {
		next, err := f.Read(ctx, q)
		switch {
		case ctx.Err() != nil:
			return page, nil
		case err != nil || !next.Idle:
			return next, err
		}
		page, q.After = next, next.Cursor
		if !f.await(ctx, &q) {
			return page, nil
		}
	}
}

// await waits until the index has a message behind q.After that the query may want. It reports
// false if ctx is done first. It moves q.After past messages of other towns.
func (f *Feed) await(ctx context.Context, q *Query) bool {
	x := f.config.Index
	for ctx.Err() == nil {
		if moved := x.Moved(q.After + 1); moved != nil {
			select {
			case <-moved:
			case <-ctx.Done():
			}
			continue
		}
		if q.Towns == nil {
			return true
		}
		if q.After = x.Skip(q.Towns, q.After); q.After < x.Position() {
			return true
		}
		_ = backoff.Sleep(ctx, wakeInterval)
	}
	return false
}

// Read returns the commits behind a cursor: fewer than the limit if they are large, if too many
// messages had to be read, or if the log ends. It returns ErrInvalidCursor or
// commitlog.ErrLogUnavailable.
func (f *Feed) Read(ctx context.Context, q Query) (Page, error) {
	end, err := f.End(ctx)
	if err != nil {
		return Page{}, err
	}
	if q.After > end {
		return Page{}, fmt.Errorf("feed: the cursor %d lies beyond the end of the log, %d: %w",
			q.After, end, ErrInvalidCursor)
	}
	r := &pageReader{feed: f, query: &q, page: Page{Cursor: q.After}, bytesLeft: pageBytes}
	for most := 1; !r.full && r.page.Cursor < end; {
		if q.Towns == nil {
			most = batch
		} else if upTo := f.config.Index.Skip(q.Towns, r.page.Cursor); upTo > r.page.Cursor {
			if upTo-r.page.Cursor > batch {
				most = 1 // the next messages may be of other towns again
			}
			r.page.Cursor = upTo
			continue
		}
		most = min(most, q.Limit-len(r.page.Commits), int(end-r.page.Cursor))
		messages, err := commitlog.NextBatch(ctx, f.config.Log.Stream, r.page.Cursor+1, most)
		if err != nil {
			return Page{}, err
		}
		most = min(2*most, batch)
		r.removalsRead = false
		if len(messages) == 0 {
			err = r.handleMissing(ctx, end+1)
		}
		for _, msg := range messages {
			if err = r.handleMissing(ctx, msg.Sequence); err != nil || r.full {
				break
			}
			r.read(msg)
		}
		if err != nil {
			return Page{}, err
		}
	}
	r.page.Idle = len(r.page.Commits) == 0 && !r.page.Gap && r.page.Cursor >= end
	return r.page, nil
}

type pageReader struct {
	feed      *Feed
	query     *Query
	page      Page
	bytesLeft int
	scanned   int
	full      bool
	// readRemoved sets first to the log's first message, and removed to the removed messages behind it.
	// If these are too many to list, it sets first beyond all messages. removalsRead is set if readRemoved was
	// called after the last bulk read.
	first        uint64
	removed      map[uint64]bool
	removalsRead bool
}

// read adds a message to the page if the query wants it and the page has room.
func (r *pageReader) read(msg *jetstream.RawStreamMsg) {
	if !r.query.matches(msg.Subject, msg.Header) {
		r.advance(msg.Sequence)
		return
	}
	data, err := Message(msg)
	if err != nil {
		r.addDamaged(msg.Sequence, err)
		return
	}
	r.add(msg.Sequence, data)
}

// addDamaged adds a commit that cannot be read.
func (r *pageReader) addDamaged(seq uint64, reason error) {
	if r.add(seq, fmt.Appendf(nil, `{"cursor":"%d","damaged":true}`, seq)) {
		r.feed.config.OnDamaged(seq, reason)
	}
}

// add adds a commit message, and reports whether there was room for it.
func (r *pageReader) add(seq uint64, data []byte) bool {
	r.bytesLeft -= len(data) + 1
	if len(r.page.Commits) > 0 && r.bytesLeft < 0 {
		r.full = true
		return false
	}
	r.page.Commits = append(r.page.Commits, data)
	r.advance(seq)
	r.full = r.full || len(r.page.Commits) == r.query.Limit
	return true
}

// advance moves the cursor of the page to a message.
func (r *pageReader) advance(seq uint64) {
	r.page.Cursor = seq
	r.scanned++
	r.full = r.full || r.scanned == maxScanned
}

// handleMissing handles the messages between the page's cursor and until, which the bulk read did not
// deliver. They were removed from the log, or NATS cannot read them.
func (r *pageReader) handleMissing(ctx context.Context, until uint64) error {
	for r.page.Cursor+1 < until && !r.full {
		seq := r.page.Cursor + 1
		if seq >= r.first && !r.removed[seq] && !r.removalsRead {
			if err := r.readRemoved(ctx); err != nil {
				return err
			}
		}
		if seq < r.first || r.removed[seq] {
			r.page.Gap, r.page.Cursor = true, max(seq, min(r.first, until)-1)
			continue
		}
		msg, err := r.feed.config.Log.At(ctx, seq)
		switch {
		case err != nil:
			return err
		case msg == nil:
			r.addDamaged(seq, commitlog.ErrUnreadable)
		default:
			r.read(msg)
		}
	}
	return nil
}

// readRemoved asks NATS which messages were removed from the log.
func (r *pageReader) readRemoved(ctx context.Context) error {
	log := r.feed.config.Log.Stream
	info, err := commitlog.LeaderInfo(ctx, log)
	if err == nil && 0 < info.State.NumDeleted && info.State.NumDeleted <= maxRemoved {
		info, err = commitlog.LeaderInfo(ctx, log, jetstream.WithDeletedDetails(true))
	}
	if err != nil {
		return err
	}
	r.first, r.removed, r.removalsRead = max(info.State.FirstSeq, 1), map[uint64]bool{}, true
	for _, seq := range info.State.Deleted {
		r.removed[seq] = true
	}
	if info.State.NumDeleted > len(info.State.Deleted) {
		r.first = math.MaxUint64
	}
	return nil
}
