package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/backoff"
)

// Difference is a difference between the file of an index and the log.
type Difference struct {
	Seq       uint64 // log sequence
	Town      string // token, "" if the row has none
	What      string
	Want, Got string // the row as the log gives it, and as the file has it
}

// A running server writes rows a moment after the log has them, so Compare reads its file up to
// compareTries times.
const (
	compareTries = 25
	comparePause = 100 * time.Millisecond
)

// Compare returns the rows, in the order of the log, in which the file of an index differs from the
// log. It compares with an index built from the log up to a sequence. A server may be using the
// file; Compare changes nothing.
//
// A row of a message that the log has forgotten is no difference. Links between rows and the
// numbers of names are not compared: they depend on forgotten rows, and each reading of a file
// checks them.
func Compare(
	ctx context.Context, source Source, dir, world string, end uint64,
) ([]Difference, error) {
	fresh, err := stateUpTo(ctx, source, end)
	if err != nil {
		return nil, err
	}
	used, bad, err := readInUse(ctx, newFile(dir, world), fresh.position)
	if err != nil || used == nil {
		return bad, err
	}
	newest, err := source.End(ctx) // after the look at the file: both grow meanwhile
	if err != nil {
		return nil, fmt.Errorf("worldengine: end of the log: %w", err)
	}
	found := compareStates(fresh, used, newest)
	if len(found) > 0 {
		// A compaction of the file may have dropped rows that the log has forgotten since fresh was
		// read. A state that is read after the file has no rows that the file may lack.
		if fresh, err = stateUpTo(ctx, source, end); err != nil {
			return nil, err
		}
		found = compareStates(fresh, used, newest)
	}
	return append(bad, found...), nil
}

// stateUpTo reads the rows of a log up to a sequence.
func stateUpTo(ctx context.Context, source Source, end uint64) (*state, error) {
	s := newState(0)
	err := source.EachAfter(ctx, 0, func(seq uint64, subject string, header nats.Header) error {
		if seq > end {
			return errEnough
		}
		e := newEntry(seq, subject, header)
		s.add(&e)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("worldengine: index of the log: %w", err)
	}
	return s, nil
}

// readInUse reads the rows of a file. It tries again while the file is missing, ends before a
// sequence, or seems damaged: a server may be writing it. bad is a fault of the file itself; s is
// nil if no row is usable.
func readInUse(
	ctx context.Context, f *file, upTo uint64,
) (s *state, bad []Difference, err error) {
	for range compareTries {
		s, bad, err = readOnly(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) ||
			err == nil && bad == nil && s.position >= upTo {
			break
		}
		if err := backoff.Sleep(ctx, comparePause); err != nil {
			return nil, nil, err
		}
	}
	return s, bad, err
}

// readOnly reads the present rows of a file, and changes nothing.
func readOnly(f *file) (s *state, bad []Difference, err error) {
	in, err := os.Open(f.path)
	if err != nil {
		return nil, nil, fmt.Errorf("worldengine: file of the index: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("worldengine: file of the index: %w", err)
	}
	size := info.Size()
	s, good, err := readRows(io.LimitReader(in, size), f.head, size/(frameHead+rowSize))
	switch {
	case err != nil:
		return nil, []Difference{{What: "the file of the index does not count", Want: f.head,
			Got: err.Error()}}, nil
	case good < size:
		bad = []Difference{{Seq: s.position, What: "the file of the index has a bad end",
			Want: fmt.Sprintf("%d bytes", size), Got: fmt.Sprintf("%d bytes", good)}}
	}
	return s, bad, nil
}

// compareStates returns the differences between the rows of an index in use and of a fresh one. end
// is the end of the log.
func compareStates(fresh, used *state, end uint64) (all []Difference) {
	forgotten := map[uint32]bool{} // runs with rows of forgotten messages
	n := uint32(1)                 // a row of used
	for m := uint32(1); m <= fresh.count; m++ {
		want := fresh.row(m)
		for ; n <= used.count && used.row(n).Seq < want.Seq; n++ {
			forgotten[used.row(n).Run] = true
		}
		d := Difference{Seq: want.Seq, Town: fresh.names[townNames].names[want.Town]}
		if n > used.count || used.row(n).Seq != want.Seq {
			d.What, d.Want = "the index lacks a row", fresh.text(want, false)
			all = append(all, d)
			continue
		}
		got := used.row(n)
		partly := got.Run != 0 && forgotten[got.Run]
		if d.Want, d.Got = fresh.text(want, partly), used.text(got, partly); d.Want != d.Got {
			d.What = "the index has another row"
			all = append(all, d)
		}
		n++
	}
	for ; n <= used.count; n++ {
		if r := used.row(n); r.Seq > end {
			all = append(all, Difference{Seq: r.Seq, Town: used.names[townNames].names[r.Town],
				What: "the index has a row that the log does not have", Got: used.text(r, false)})
		}
	}
	return all
}

// text returns a row without links and numbers of names. partly is set if the log has forgotten a
// part of the row's run: the text then also lacks facts made of the run's earlier rows.
func (s *state) text(r *row, partly bool) string {
	v := s.view(r)
	v.Flags = r.Flags
	if partly {
		v.Status, v.Flags = "", v.Flags&^(First|Ended)
	}
	return fmt.Sprintf("%s, town %s, run %016x, key %016x, status %q, result %q, reason %q, type %q, "+
		"actor %q, events %d-%d, flags %x, at %s after %d ms", v.Kind, v.Town, r.RunID, r.Key, v.Status,
		v.ResultStatus, v.Reason, v.Type, v.ActorID, v.First, v.Last, v.Flags,
		v.At.Format(time.RFC3339Nano), r.Waited)
}
