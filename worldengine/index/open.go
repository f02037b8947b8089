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

	"worldengine/worldengine/backoff"
)

// Open opens the index of a log. A goroutine then reads the rest of the log; Progress reports how
// far. Rows after a damaged frame are read from the log again. The file is built anew if it is
// missing, is of another world, format or log, or has a damaged first frame. Open fails if it
// cannot set aside the file of a log that lost its end, or read the log. Close ends the index.
func Open(ctx context.Context, config Config) (*Index, error) {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	ix := &Index{config: config, wanted: make(chan struct{}, 1), s: newState(0)}
	if config.Dir != "" {
		ix.file = newFile(config.Dir, config.World)
		if err := ix.load(ctx); err != nil {
			return nil, err
		}
	}
	end, err := config.Source.End(ctx)
	if err != nil {
		return nil, fmt.Errorf("worldengine: end of the log: %w", err)
	}
	ix.total = end
	if config.Dir != "" && ix.s.count > 0 { // without rows, the samples may be another log's
		ix.loadSamples(end)
	}
	ix.sample()
	ctx, ix.stop = context.WithCancel(context.WithoutCancel(ctx))
	ix.closed = ctx.Done()
	ix.done.Go(func() { ix.follow(ctx) })
	ix.done.Go(func() { ix.keepSmall(ctx) })
	if ix.file != nil {
		ix.done.Go(func() { ix.keepFile(ctx) })
	}
	return ix, nil
}

// Close ends the index after its rows are in the file. The index must not be used afterwards.
func (ix *Index) Close() error {
	ix.stop()
	ix.done.Wait()
	if ix.file == nil {
		return nil
	}
	return errors.Join(ix.flush(), ix.keepSamples())
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
	lost, err := surplus(ctx, ix.config.Source, s)
	if err != nil {
		return fmt.Errorf("worldengine: index and log cannot be compared: %w", err)
	}
	if len(lost) == 0 {
		ix.s = s
		return nil
	}
	aside, err := ix.file.setAside(s.position)
	if err != nil {
		return fmt.Errorf("worldengine: the file of an index that the log lost: %w", err)
	}
	ix.config.Logger.Warn("the index is rebuilt: the log does not have its last records any more",
		"file", aside, "first", lost[0].Seq, "last", s.position, "records", len(lost))
	if ix.config.Lost != nil {
		ix.config.Lost(lost)
	}
	return nil
}

// Lost returns the newest rows up to a sequence, ascending, that the log no longer has: it lost its
// end or was replaced.
func (ix *Index) Lost(ctx context.Context, upTo uint64) ([]Row, error) {
	ix.mu.RLock()
	view := *ix.s // rows and names, once added, never change
	ix.mu.RUnlock()
	view.count, view.position = view.after(upTo)-1, min(view.position, upTo)
	return surplus(ctx, ix.config.Source, &view)
}

// Names names the last ten of some rows, the newest first.
func Names(rows []Row) string {
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

// errEnough ends the visit of a log.
var errEnough = errors.New("enough")

// next returns the first message that a log keeps after a sequence, nil if there is none.
func next(ctx context.Context, source Source, seq uint64) (e *entry, err error) {
	err = source.EachAfter(ctx, seq, func(seq uint64, subject string, header nats.Header) error {
		e = new(newEntry(seq, subject, header))
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return e, err
}

// surplus returns the newest rows whose message is missing in the log, or replaced there. Messages
// that the log discarded as its oldest do not count.
func surplus(ctx context.Context, source Source, s *state) (lost []Row, err error) {
	end, err := source.End(ctx)
	if err != nil || s.count == 0 {
		return nil, err
	}
	// compare returns whether the log has or lacks the message of a row. Both are false if the log may
	// have discarded the message.
	compare := func(n uint32) (has, lacks bool) {
		e, readErr := next(ctx, source, s.row(n).Seq-1)
		err = cmp.Or(err, readErr)
		switch {
		case e == nil:
			has = s.row(n).Seq <= end // the log has discarded all messages from here on
		case e.Seq > s.position:
			return false, false
		default:
			has = s.has(e)
		}
		return has, !has
	}
	has, lacks, last := false, false, s.count
	for back := uint32(0); back < s.count && !has && !lacks && err == nil; back = 2*back + 1 {
		last = s.count - back
		has, lacks = compare(last)
	}
	if !lacks || err != nil {
		return nil, err
	}
	first := sort.Search(int(last), func(i int) bool {
		_, lacks := compare(uint32(i) + 1)
		return lacks
	})
	for n := uint32(first) + 1; n <= s.count; n++ {
		lost = append(lost, s.view(s.row(n)))
	}
	return lost, err
}

// has reports whether the state has the row of an entry.
func (s *state) has(e *entry) bool {
	n := s.after(e.Seq - 1)
	if n > s.count {
		return false
	}
	have := s.entry(s.row(n))
	have.Flags &^= Ended
	return have.facts == e.facts && have.kind == e.kind && have.town == e.town
}

// Pauses of the index's goroutines.
const (
	flushEvery   = 100 * time.Millisecond
	lookEvery    = time.Second
	compactEvery = time.Minute
)

// follow reads the rest of the log. Then it reads gaps: at once if a Wait asks, else once a second.
// It ends when ctx does.
func (ix *Index) follow(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for read := true; ; {
		if read {
			err := ix.fill(ctx)
			if err != nil && ctx.Err() == nil {
				ix.config.Logger.Warn("the index cannot read the log; it tries again", "err", err)
			}
			ix.hasRead(err)
		}
		select {
		case <-ix.wanted:
			read = true
		case <-look.C:
			read = ix.unread()
		case <-ctx.Done():
			return
		}
	}
}

// unread reports whether the index is not built yet, or has a gap.
func (ix *Index) unread() bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.total > 0 || len(ix.ahead) > 0
}

// hasRead notes the outcome of a reading of the log to its end.
func (ix *Index) hasRead(err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	select {
	case <-ix.wanted: // this reading has answered it
	default:
	}
	if err != nil {
		ix.failures, ix.failed = ix.failures+1, err
		return
	}
	if ix.total > 0 {
		ix.config.Logger.Info("the index has followed the log", "seq", ix.s.position, "rows",
			ix.s.count)
	}
	ix.total = 0
}

// keepFile writes new rows to the file until ctx ends. While the file cannot be written, keepFile
// tries once a second.
func (ix *Index) keepFile(ctx context.Context) {
	pause := flushEvery
	for backoff.Sleep(ctx, pause) == nil {
		err := ix.flush()
		switch {
		case err == nil:
			pause = flushEvery
		case pause == flushEvery: // the first of several failures
			pause = lookEvery
			ix.config.Logger.Warn("the file of the index cannot be written; it is tried each second",
				"file", ix.file.path, "err", err)
		}
	}
}

// keepSmall drops forgotten rows and writes the samples, once a minute until ctx ends.
func (ix *Index) keepSmall(ctx context.Context) {
	for backoff.Sleep(ctx, compactEvery) == nil {
		if err := ix.compact(ctx); err != nil && ctx.Err() == nil {
			ix.config.Logger.Warn("the index keeps rows of forgotten messages", "err", err)
		}
		if err := ix.keepSamples(); err != nil {
			ix.config.Logger.Warn("the samples of the index cannot be written", "err", err)
		}
	}
}

func (ix *Index) flush() error {
	ix.mu.RLock()
	s, view := ix.s, *ix.s
	ix.mu.RUnlock()
	return ix.file.flush(s, view)
}
