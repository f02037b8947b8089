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

	"github.com/nats-io/nats.go"
)

// ErrBehind: the index has not followed the log far enough yet, so nothing is known of its newest
// records. Ask again.
var ErrBehind = errors.New("worldengine: the index has not followed the log yet")

// Config is how an index is opened. World and Source must be set.
type Config struct {
	World  string
	Source Source
	// Dir is the directory of the file "rows", made if it is missing; "" keeps the index in memory.
	Dir string
	// Logger gets rebuilds, progress and failures of the disk; slog.Default() if nil.
	Logger *slog.Logger
	// Lost gets the rows that the log does not have any more because it lost its end or was
	// swapped, ascending. It is called before Open returns; nil ignores them.
	Lost func(rows []Row)
	// Draw returns a duration from 0 up to below, by which each wait for a gap to close is longer;
	// nil for none.
	Draw func(below time.Duration) time.Duration
}

// Source is the log that an index follows. It is safe for concurrent use.
type Source interface {
	// End returns the sequence of the log's last message, kept or not.
	End(ctx context.Context) (uint64, error)
	// EachAfter visits the kept messages behind a sequence in order, up to the end at the time of
	// the call or farther. It ends with the error of visit.
	EachAfter(ctx context.Context, seq uint64,
		visit func(seq uint64, subject string, header nats.Header) error) error
}

// Index finds things in a log. It is safe for concurrent use. Its answers hold for the messages up
// to Position; those that were Put behind it are seen by Accepted, AcceptedAnywhere, Run and
// LastAt alone.
type Index struct {
	config    Config
	maxSearch int
	// filling is held by the one who reads the log.
	filling chan struct{}
	stop    context.CancelFunc
	file    *file // nil in memory; used by one goroutine at a time
	done    sync.WaitGroup

	mu       sync.RWMutex
	s        *state
	ahead    []entry       // were Put behind a gap, ascending
	moved    chan struct{} // closed when position moves; nil if nobody waits
	since    []entry       // were added since a compaction began
	compacts bool
	total    uint64 // end of the log when building began; 0 when it is built
}

// gapWait is how long Wait trusts that a gap is closed by Put.
const gapWait = 20 * time.Millisecond

// Put adds a message that this process has committed at a sequence. One that is in is ignored.
func (ix *Index) Put(seq uint64, subject string, header nats.Header) {
	e := newEntry(seq, subject, header)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.put(&e)
	ix.advance(0)
}

// put keeps an entry until advance adds it.
func (ix *Index) put(e *entry) {
	i, found := slices.BinarySearchFunc(ix.ahead, e.seq, func(a entry, seq uint64) int {
		return cmp.Compare(a.seq, seq)
	})
	if !found && e.seq > ix.s.position {
		ix.ahead = slices.Insert(ix.ahead, i, *e)
	}
}

// advance adds the entries up to a sequence, behind which no gap is, and those right behind them.
func (ix *Index) advance(upTo uint64) {
	before, n := ix.s.position, 0
	for ; n < len(ix.ahead) && ix.ahead[n].seq <= max(upTo, ix.s.position)+1; n++ {
		if e := &ix.ahead[n]; e.seq > ix.s.position {
			ix.s.add(e)
			if ix.compacts {
				ix.since = append(ix.since, *e)
			}
		}
	}
	ix.ahead = slices.Delete(ix.ahead, 0, n)
	ix.s.position = max(ix.s.position, upTo)
	if ix.s.position > before && ix.moved != nil {
		close(ix.moved)
		ix.moved = nil
	}
}

func (ix *Index) gapWait() time.Duration {
	if ix.config.Draw == nil {
		return gapWait
	}
	return gapWait + ix.config.Draw(gapWait)
}

// Wait returns when every message of the log up to a sequence is in. It returns an ErrBehind when
// ctx ends or the log cannot be read.
func (ix *Index) Wait(ctx context.Context, seq uint64) error {
	if ix.Position() >= seq {
		return nil
	}
	timer := time.NewTimer(ix.gapWait())
	defer timer.Stop()
	for {
		moved := ix.behind(seq)
		if moved == nil {
			return nil
		}
		select {
		case <-moved:
		case <-timer.C:
			if err := ix.fill(ctx, seq); err != nil {
				return fmt.Errorf("%w: it is at sequence %d, not at %d: %w", ErrBehind,
					ix.Position(), seq, err)
			}
			timer.Reset(ix.gapWait())
		case <-ctx.Done():
			return fmt.Errorf("%w: it is at sequence %d, not at %d: %w", ErrBehind,
				ix.Position(), seq, ctx.Err())
		}
	}
}

// behind returns nil if position has reached a sequence, else a channel that is closed when
// position moves.
func (ix *Index) behind(seq uint64) <-chan struct{} {
	ix.mu.RLock()
	in := ix.s.position >= seq
	ix.mu.RUnlock()
	if in {
		return nil
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.s.position >= seq {
		return nil
	}
	if ix.moved == nil {
		ix.moved = make(chan struct{})
	}
	return ix.moved
}

// Sync waits for the present end of the log, and returns its sequence. Its errors are Wait's.
func (ix *Index) Sync(ctx context.Context) (end uint64, err error) {
	if end, err = ix.config.Source.End(ctx); err != nil {
		return 0, fmt.Errorf("%w: end of the log: %w", ErrBehind, err)
	}
	return end, ix.Wait(ctx, end)
}

// fill reads the log to its end, unless another call brings the index to seq meanwhile.
func (ix *Index) fill(ctx context.Context, seq uint64) error {
	select {
	case ix.filling <- struct{}{}:
		defer func() { <-ix.filling }()
	case <-ctx.Done():
		return ctx.Err()
	}
	position := ix.Position()
	if position >= seq {
		return nil
	}
	end, err := ix.config.Source.End(ctx)
	if err != nil {
		return err
	}
	progress := ix.progress(end)
	err = ix.config.Source.EachAfter(ctx, position,
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
	ix.advance(end)
	return nil
}

// progress returns a function that logs the progress of a long reading, once every 100,000 messages
// or 5 seconds.
func (ix *Index) progress(end uint64) func(seq uint64) {
	n, logged := 0, time.Now()
	return func(seq uint64) {
		n++
		if n%1000 == 0 && (n%100_000 == 0 || time.Since(logged) > 5*time.Second) {
			logged = time.Now()
			ix.config.Logger.Info("the index reads the log", "seq", seq, "end", end)
		}
	}
}

// Position returns the sequence up to which every kept message of the log is in.
func (ix *Index) Position() uint64 {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.s.position
}

// Progress reports whether the index is being built since Open, from how far to the end that the
// log had then.
func (ix *Index) Progress() (done, total uint64, building bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.s.position, ix.total, ix.total > 0
}

// Counts are the sizes of an index.
type Counts struct {
	Rows, Runs int
	Towns      int   // that have a row
	Bytes      int64 // of memory, without names
}

// Counts returns the sizes of the index.
func (ix *Index) Counts() Counts {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := ix.s
	slots := len(s.keys.slots) + len(s.anyKeys.slots) + len(s.runIDs.slots)
	return Counts{
		Rows: int(s.count), Runs: len(s.runs) - 1, Towns: len(s.towns) - 1,
		Bytes: int64(len(s.chunks)*chunkRows*rowSize + 4*slots + 24*(cap(s.runs)+cap(s.towns))),
	}
}
