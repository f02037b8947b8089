package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"worldengine/worldengine/internal/kit/wakeup"

	"github.com/nats-io/nats.go"
)

// ErrBehind means that the index has not followed the log far enough yet, so nothing is known of its newest
// records. Ask again.
var ErrBehind = errors.New("index: the index has not followed the log yet")

// Config is how an index is opened. World and Source must be set.
type Config struct {
	World  string
	Source Source
	// Dir is the directory of the file "rows", made if it is missing; "" keeps the index in memory.
	Dir string
	// Logger gets rebuilds, progress and failures of the disk; slog.Default() if nil.
	Logger *slog.Logger
	// OnLost gets the rows, ascending, that the log no longer has because it lost its end or was
	// replaced. Open calls OnLost before it returns; with nil, the rows are ignored.
	OnLost func(rows []RowView)
	// If OnEnded is set, it is called with each run of a handoff that has ended, in the order of the log: by Open
	// with those in the file, and later with each new one. It must not call the index.
	OnEnded func(EndedRun)
	// If OnWoken is set, each Wait that had to wait calls it before it returns. A simulation thus
	// decides which of several calls of Wait continues first.
	OnWoken func(ctx context.Context)

	tidyInterval time.Duration // see the constant
}

// Source is the log that an index follows. It is safe for concurrent use.
type Source interface {
	// End returns the sequence of the log's last message, kept or not.
	End(ctx context.Context) (uint64, error)
	// EachAfter visits the kept messages after a sequence in order. If there is no error, upTo is
	// how far it has come: every message that the log keeps up to there was visited. upTo may be
	// before the End of another call. EachAfter ends with the first error of visit.
	EachAfter(ctx context.Context, seq uint64,
		visit func(seq uint64, subject string, header nats.Header) error) (upTo uint64, err error)
	// Messages returns how many messages the log keeps.
	Messages(ctx context.Context) (uint64, error)
	// Limits returns which records the log may have forgotten, as far as is known without asking it.
	Limits() Limits
}

// Limits say which records of a town a log may have forgotten: those with at least MinHistory newer ones
// in their town, and some at the beginning of histories up to the sequence RestoredTo.
type Limits struct{ MinHistory, RestoredTo uint64 }

// Index finds things in a log. It is safe for concurrent use. Its answers cover the messages up to
// Position. Only Accepted and LastAt also see later messages that were Put.
type Index struct {
	config   Config
	readLock chan struct{} // has an element while the log is read
	stop     context.CancelFunc
	closed   <-chan struct{} // closed when stop is called
	file     *file           // nil without Config.Dir; used by one goroutine at a time
	done     sync.WaitGroup

	mu         sync.RWMutex
	state      *state
	notified   uint64         // the sequence up to which OnEnded was called
	outOfOrder []entry        // entries that are not added yet, ascending: those after a gap
	advanced   chan struct{}  // closed when position moves; nil if nobody waits
	gapFound   wakeup.Channel // outOfOrder has entries
	buildEnd   uint64         // end of the log when building began; 0 when the index is built
}

// gapTimeout is how long Wait waits for Put to close a gap, before it reads the log.
const gapTimeout = 20 * time.Millisecond

// Put adds a message that this process has committed at a sequence, unless the index has it.
func (ix *Index) Put(seq uint64, subject string, header nats.Header) {
	e := newEntry(seq, subject, header)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.put(&e)
	ix.advance(0)
}

// put keeps an entry until advance adds it.
func (ix *Index) put(e *entry) {
	i, found := slices.BinarySearchFunc(ix.outOfOrder, e.Seq, func(a entry, seq uint64) int {
		return cmp.Compare(a.Seq, seq)
	})
	if !found && e.Seq > ix.state.position {
		ix.outOfOrder = slices.Insert(ix.outOfOrder, i, *e)
	}
}

// advance adds the entries up to upTo, and those that follow without a gap.
func (ix *Index) advance(upTo uint64) {
	before, n := ix.state.position, 0
	for ; n < len(ix.outOfOrder) && ix.outOfOrder[n].Seq <= max(upTo, ix.state.position)+1; n++ {
		if e := &ix.outOfOrder[n]; e.Seq > ix.state.position {
			ix.state.add(e)
		}
	}
	ix.outOfOrder = slices.Delete(ix.outOfOrder, 0, n)
	ix.state.position = max(ix.state.position, upTo)
	ix.notifyEnded()
	if len(ix.outOfOrder) > 0 {
		ix.gapFound.Wake()
	}
	if ix.state.position > before && ix.advanced != nil {
		close(ix.advanced)
		ix.advanced = nil
	}
}

var errClosed = errors.New("the index is closed")

// Wait returns when the index has every message of the log up to a sequence. It returns an
// ErrBehind if ctx ends, the log cannot be read, or the index is closed.
func (ix *Index) Wait(ctx context.Context, seq uint64) error {
	if ix.Position() >= seq {
		return nil
	}
	for ix.Position() < seq {
		err := ix.awaitPut(ctx, seq)
		if err == nil {
			err = ix.readGap(ctx, seq)
		}
		if err != nil && ix.Position() < seq { // it may have moved at that instant
			return fmt.Errorf("%w: it is at sequence %d, not at %d: %w", ErrBehind, ix.Position(),
				seq, err)
		}
	}
	if ix.config.OnWoken != nil {
		ix.config.OnWoken(ctx)
	}
	return nil
}

// awaitPut returns when Position has reached a sequence, or after gapTimeout: what this process commits
// is put soon, and only the messages of other writers must be read.
func (ix *Index) awaitPut(ctx context.Context, seq uint64) error {
	gap := time.NewTimer(gapTimeout)
	defer gap.Stop()
	for moved := ix.Moved(seq); moved != nil; moved = ix.Moved(seq) {
		select {
		case <-moved:
		case <-gap.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ix.closed:
			return errClosed
		}
	}
	return nil
}

// readGap reads the log once no other call does, unless Position reaches a sequence before.
func (ix *Index) readGap(ctx context.Context, seq uint64) error {
	for moved := ix.Moved(seq); moved != nil; moved = ix.Moved(seq) {
		select {
		case <-moved:
		case ix.readLock <- struct{}{}:
			defer func() { <-ix.readLock }()
			return ix.readNew(ctx)
		case <-ctx.Done():
			return ctx.Err()
		case <-ix.closed:
			return errClosed
		}
	}
	return nil
}

// Moved returns nil if Position has reached a sequence, else a channel that is closed when Position
// moves.
func (ix *Index) Moved(seq uint64) <-chan struct{} {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.state.position >= seq {
		return nil
	}
	if ix.advanced == nil {
		ix.advanced = make(chan struct{})
	}
	return ix.advanced
}

// AwaitNews waits until Position is beyond a sequence, or an interval has passed. It returns ctx's error
// if ctx ends first.
func (ix *Index) AwaitNews(ctx context.Context, seq uint64, interval time.Duration) error {
	moved := ix.Moved(seq + 1)
	if moved == nil {
		return ctx.Err()
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-moved:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// CatchUp waits for the present end of the log, and returns its sequence. Its errors are Wait's.
func (ix *Index) CatchUp(ctx context.Context) (end uint64, err error) {
	if end, err = ix.config.Source.End(ctx); err != nil {
		return 0, fmt.Errorf("%w: end of the log: %w", ErrBehind, err)
	}
	return end, ix.Wait(ctx, end)
}

// readNew reads the log to its end, or less far: the index never moves over a message that was not
// read, whatever end another request has named. No other call may run.
func (ix *Index) readNew(ctx context.Context) error {
	position := ix.Position()
	end, err := ix.config.Source.End(ctx)
	if err != nil {
		return err
	}
	progress := ix.progressLogger(end)
	upTo, err := ix.config.Source.EachAfter(ctx, position,
		func(seq uint64, subject string, header nats.Header) error {
			progress(seq)
			e := newEntry(seq, subject, header)
			ix.mu.Lock()
			defer ix.mu.Unlock()
			ix.put(&e)
			ix.advance(seq)
			return nil
		})
	if err != nil {
		return err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.advance(upTo)
	if ix.state.position < end {
		return fmt.Errorf("the log ended at sequence %d, and then could be read to %d", end, upTo)
	}
	if ix.buildEnd > 0 {
		ix.config.Logger.Info("the index has followed the log", "seq", ix.state.position, "rows",
			ix.state.count)
	}
	ix.buildEnd = 0
	return nil
}

// progressLogger returns a function that logs the progress of a long reading, every 100,000 messages or 5
// seconds.
func (ix *Index) progressLogger(end uint64) func(seq uint64) {
	n, logged := 0, time.Now()
	return func(seq uint64) {
		n++
		if n%1000 == 0 && (n%100_000 == 0 || time.Since(logged) > 5*time.Second) {
			logged = time.Now()
			ix.config.Logger.Info("the index reads the log", "seq", seq, "end", end)
		}
	}
}

// Position returns the sequence up to which the index has every kept message of the log.
func (ix *Index) Position() uint64 {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.state.position
}

// Progress returns Position as done. total is the end of the log at Open, or 0 if the index has
// followed the log to its end.
func (ix *Index) Progress() (done, total uint64) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.state.position, ix.buildEnd
}

// Rows returns the number of rows.
func (ix *Index) Rows() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return int(ix.state.count)
}
