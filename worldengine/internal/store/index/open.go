package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/wakeup"
)

// Open opens the index of a log. A goroutine then reads the rest of the log; Progress reports how
// far. Rows after a damaged frame are read from the log again. The file is built anew if it is
// missing, is of another world, format or log, or has a damaged first frame. Open fails if it
// cannot set aside the file of a log that lost its end, or read the log. Close ends the index.
func Open(ctx context.Context, config Config) (*Index, error) {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	ix := &Index{config: config, readLock: make(chan struct{}, 1), state: newState(0),
		gapFound: wakeup.New()}
	if config.Dir != "" {
		ix.file = newFile(config.Dir, config.World)
		if err := ix.load(ctx); err != nil {
			return nil, err
		}
	}
	end, err := config.Source.End(ctx)
	if err != nil {
		return nil, fmt.Errorf("index: end of the log: %w", err)
	}
	ix.buildEnd = end
	ix.notifyEnded()
	ctx, ix.stop = context.WithCancel(context.WithoutCancel(ctx))
	ix.closed = ctx.Done()
	ix.done.Go(func() { ix.follow(ctx) })
	ix.done.Go(func() { ix.flushLoop(ctx) })
	ix.done.Go(func() { ix.tidyLoop(ctx) })
	return ix, nil
}

// Close ends the index after its rows are in the file. The index must not be used afterwards.
func (ix *Index) Close() error {
	ix.stop()
	ix.done.Wait()
	return ix.flush()
}

// load reads the rows of the file, unless the log no longer has them.
func (ix *Index) load(ctx context.Context) error {
	s, rest, err := ix.file.read()
	if err != nil {
		ix.config.Logger.Info("the index is built from the log: it has no usable file", "file",
			ix.file.path, "err", err)
		return nil
	}
	if rest > 0 {
		ix.config.Logger.Info("the index reads the end of the log again: its file had a bad end",
			"file", ix.file.path, "bytes", rest, "seq", s.position)
	}
	lost, err := lostRows(ctx, ix.config.Source, s)
	if err != nil {
		return fmt.Errorf("index: index and log cannot be compared: %w", err)
	}
	if len(lost) == 0 {
		ix.state = s
		return nil
	}
	aside, err := ix.file.setAside(s.position)
	if err != nil {
		return fmt.Errorf("index: the file of an index that the log lost: %w", err)
	}
	ix.config.Logger.Warn("the index is rebuilt: the log does not have its last records any more",
		"file", aside, "first", lost[0].Seq, "last", s.position, "records", len(lost))
	if ix.config.OnLost != nil {
		ix.config.OnLost(lost)
	}
	return nil
}

// FindLost returns the newest rows up to a sequence, ascending, that the log no longer has: it lost its
// end or was replaced.
func (ix *Index) FindLost(ctx context.Context, upTo uint64) ([]RowView, error) {
	ix.mu.RLock()
	view := *ix.state // rows and names, once added, never change
	ix.mu.RUnlock()
	view.count, view.position = view.firstAfter(upTo)-1, min(view.position, upTo)
	return lostRows(ctx, ix.config.Source, &view)
}

// DescribeRows names the last ten of some rows, the newest first.
func DescribeRows(rows []RowView) string {
	const most = 10
	var named []string
	for _, row := range slices.Backward(rows) {
		if len(named) == most {
			named = append(named, fmt.Sprintf("and %d more", len(rows)-most))
			break
		}
		named = append(named, fmt.Sprintf("log sequence %d of town %s (%s)", row.Seq,
			cmp.Or(row.Town, "none"), row.Kind))
	}
	return strings.Join(named, "; ")
}

// errStopScan ends the visit of a log.
var errStopScan = errors.New("enough")

// next returns the first message that a log keeps after a sequence, nil if there is none up to end.
func next(ctx context.Context, source Source, seq, end uint64) (e *entry, err error) {
	upTo, err := source.EachAfter(ctx, seq, func(seq uint64, subject string, header nats.Header) error {
		e = new(newEntry(seq, subject, header))
		return errStopScan
	})
	if errors.Is(err, errStopScan) {
		return e, nil
	}
	if err == nil && upTo < end {
		err = fmt.Errorf("the log ended at sequence %d, and then could be read to %d", end, upTo)
	}
	return nil, err
}

// lostRows returns the newest rows whose message is missing in the log, or replaced there. Messages
// that the log discarded as its oldest do not count.
func lostRows(ctx context.Context, source Source, s *state) (lost []RowView, err error) {
	end, err := source.End(ctx)
	if err != nil {
		return nil, err
	}
	keeps := func(n int) (e *entry) { // the first message that the log keeps from a row on
		if err == nil {
			e, err = next(ctx, source, s.row(uint32(n)).Seq-1, end)
		}
		return e
	}
	// If the log keeps nothing from a row on, it has discarded its end, and NATS takes long to say so.
	lacks := func(n int) bool { e := keeps(n); return e != nil && !s.has(e) }
	first := int(s.firstAfter(end)) // the log ends before this row
	if first > 1 && lacks(first-1) {
		n := 1 + sort.Search(first-2, func(i int) bool { return lacks(i + 1) })
		if e := keeps(n); e != nil && e.Seq <= s.position { // else the log discarded all from n on
			first = n
		}
	}
	for n := uint32(first); n <= s.count; n++ {
		lost = append(lost, s.view(s.row(n)))
	}
	return lost, err
}

// has reports whether the state has the row of an entry.
func (s *state) has(e *entry) bool {
	n := s.firstAfter(e.Seq - 1)
	if n > s.count {
		return false
	}
	have := s.entry(s.row(n))
	have.Flags &^= Ended
	return have.rowFields == e.rowFields && have.kind == e.kind && have.town == e.town
}

// Pauses of the index's goroutines. Without news of the log they sleep; flushLoop looks all the same at
// intervals of idleFlushInterval, since the file may have been deleted.
const (
	flushInterval     = 100 * time.Millisecond
	followInterval    = time.Second
	idleFlushInterval = 30 * time.Second
	tidyInterval      = time.Minute
)

// follow reads the rest of the log, and then, once a second, each gap that nobody waits for. It ends
// when ctx does.
func (ix *Index) follow(ctx context.Context) {
	for ; ctx.Err() == nil; _ = backoff.Sleep(ctx, followInterval) {
		if !ix.unread() {
			select {
			case <-ix.gapFound:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case ix.readLock <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := ix.readNew(ctx)
		<-ix.readLock
		if err != nil && ctx.Err() == nil {
			ix.config.Logger.Warn("the index cannot read the log; it tries again", "err", err)
		}
	}
}

// unread reports whether the index is not built yet, or has a gap.
func (ix *Index) unread() bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.buildEnd > 0 || len(ix.outOfOrder) > 0
}

// flushLoop writes new rows to the file, ten times a second. It goes on after errors, until ctx ends.
func (ix *Index) flushLoop(ctx context.Context) {
	if ix.file == nil {
		return
	}
	for pause := flushInterval; backoff.Sleep(ctx, pause) == nil; {
		position := ix.Position()
		err := ix.flush()
		if err != nil && pause == flushInterval { // the first of several failures
			ix.config.Logger.Warn("the file of the index cannot be written; it is tried each second",
				"file", ix.file.path, "err", err)
		}
		if pause = flushInterval; err != nil { // the whole file may be written anew, to a full disk
			pause = followInterval
		} else if ix.AwaitNews(ctx, position, idleFlushInterval) != nil {
			return
		}
	}
}

// tidyLoop drops forgotten rows, once a minute until ctx ends. It is not a part
// of flushLoop, since fsck expects new rows in the file also while a large log is read again.
func (ix *Index) tidyLoop(ctx context.Context) {
	for backoff.Sleep(ctx, cmp.Or(ix.config.tidyInterval, tidyInterval)) == nil {
		if err := ix.compact(ctx); err != nil && ctx.Err() == nil {
			ix.config.Logger.Warn("the index keeps rows of forgotten messages", "err", err)
		}
	}
}

func (ix *Index) flush() error {
	if ix.file == nil {
		return nil
	}
	ix.mu.RLock()
	s, view := ix.state, *ix.state
	ix.mu.RUnlock()
	return ix.file.flush(s, view)
}
