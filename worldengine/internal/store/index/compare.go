package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/backoff"
)

// Difference is a difference between the file of an index and the log.
type Difference struct {
	Seq       uint64 // log sequence
	Town      string // token, "" if the row has none
	What      string
	Want, Got string // the row as the log gives it, and as the file has it
}

// A running server writes rows a moment after the log has them, so Compare reads its file up to
// compareTries times. If the log has forgotten the last message, Compare may wait in vain.
const (
	compareTries   = 25
	rereadInterval = 100 * time.Millisecond
)

// Compare returns the differences between the file of an index and the log up to end, in the order
// of the log. A server may be using the file; Compare changes nothing. A row of a message that the
// log has forgotten is no difference.
func Compare(
	ctx context.Context, source Source, dir, world string, end uint64,
) ([]Difference, error) {
	return compare(ctx, source, newFile(dir, world), end, rereadInterval)
}

func compare(
	ctx context.Context, source Source, f *file, end uint64, pause time.Duration,
) ([]Difference, error) {
	used, all, err := readInUse(ctx, f, end, pause)
	if err != nil || used == nil {
		return all, err
	}
	differ := func(seq uint64, town, what, want, got string) {
		all = append(all, Difference{seq, town, what, want, got})
	}
	right, n := newState(int64(used.count)), uint32(1) // a row of used
	_, err = source.EachAfter(ctx, 0, func(seq uint64, subject string, header nats.Header) error {
		if seq > end {
			return errStopScan
		}
		for ; n <= used.count && used.row(n).Seq < seq; n++ {
			e := used.entry(used.row(n)) // the log has forgotten it, but later rows of its run depend on it
			right.insert(&e)
		}
		e := newEntry(seq, subject, header)
		right.add(&e)
		want := right.text(right.row(right.count))
		if n > used.count || used.row(n).Seq != seq {
			differ(seq, e.town, "the index lacks a row", want, "")
			return nil
		}
		if got := used.text(used.row(n)); got != want {
			differ(seq, e.town, "the index has another row", want, got)
		}
		n++
		return nil
	})
	if err != nil && !errors.Is(err, errStopScan) {
		return nil, fmt.Errorf("index: index of the log: %w", err)
	}
	newest, err := source.End(ctx) // after the look at the file: both grow meanwhile
	if err != nil {
		return nil, fmt.Errorf("index: end of the log: %w", err)
	}
	for ; n <= used.count; n++ {
		if r := used.row(n); r.Seq > newest {
			differ(r.Seq, used.view(r).Town, "the index has a row that the log does not have", "",
				used.text(r))
		}
	}
	return all, nil
}

// readInUse reads the rows of a file. It tries again while the file is missing, ends before a sequence, or
// seems damaged: a server may be writing it. pause is between two tries. bad is a fault of the file itself; s
// is nil if no row is usable.
func readInUse(
	ctx context.Context, f *file, upTo uint64, pause time.Duration,
) (s *state, bad []Difference, err error) {
	var rest int64
	for range compareTries {
		if s, rest, err = f.read(); err == nil && rest == 0 && s.position >= upTo {
			break
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case errors.Is(err, errForeign):
		return nil, []Difference{{What: "the file of the index does not count", Want: f.head,
			Got: err.Error()}}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("index: file of the index: %w", err)
	case rest > 0:
		bad = []Difference{{Seq: s.position, What: "the file of the index has a bad end",
			Want: fmt.Sprintf("%d bytes", f.size+rest), Got: fmt.Sprintf("%d bytes", f.size)}}
	}
	return s, bad, nil
}

// text returns a row without its links, which are made anew whenever a file is read.
func (s *state) text(r *packedRow) string {
	e := s.entry(r)
	return fmt.Sprintf("at %s, town %s, actor %s, %+v, %+v", instant(e.At).Format(time.RFC3339Nano),
		e.town, e.actor, e.labels, e.rowFields)
}
