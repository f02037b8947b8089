package runs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"worldengine/worldengine/wire"
)

// mostRecalled is how many of the newest INCONSISTENT runs may get an alert that an earlier server owed
// them. The stream of alerts keeps no more of a code.
const mostRecalled = 1_000

// owed is the row that made a run INCONSISTENT, while the run may lack its alert.
type owed struct {
	seq  uint64
	lane string // the town token and the producer, which have a rate of their own; "" if unknown
}

// debts are the alerts about INCONSISTENT runs that the rate of alerts has postponed. The index
// has the runs of an earlier server.
type debts struct {
	mu   sync.Mutex
	open []owed
}

func (d *debts) add(all ...owed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = append(d.open, all...)
}

func (d *debts) none() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open) == 0
}

// take returns all debts, the oldest first, and forgets them.
func (d *debts) take() []owed {
	d.mu.Lock()
	defer d.mu.Unlock()
	open := d.open
	d.open = nil
	slices.SortFunc(open, func(a, b owed) int { return cmp.Compare(a.seq, b.seq) })
	return open
}

// recallDebts adds the INCONSISTENT runs that Project does not look at, as they are older, once the
// index has them all.
func (s *Store) recallDebts() {
	if s.recalled || s.index.Position() < s.began {
		return
	}
	s.recalled = true
	for _, row := range s.index.Inconsistent(0, mostRecalled) {
		if row.Seq <= s.began {
			s.debts.add(owed{seq: row.Seq})
		}
	}
}

// settle raises the postponed alerts that the rate lets through by now. It reads at most window runs,
// and none of a lane whose rate is spent.
func (s *Store) settle(ctx context.Context) (err error) {
	s.recallDebts()
	spent, read := map[string]bool{}, 0
	for _, o := range s.debts.take() {
		if err != nil || read == window || spent[o.lane] {
			s.debts.add(o)
			continue
		}
		read++
		var lane string
		if lane, err = s.raiseOwed(ctx, o); err != nil {
			s.debts.add(o)
		} else if lane != "" {
			spent[lane] = true
		}
	}
	return err
}

// raiseOwed reads a run from its beginning, which raises its alerts. If the rate postpones them again,
// they are owed again, and raiseOwed returns the lane. An expired or damaged run gets none.
func (s *Store) raiseOwed(ctx context.Context, o owed) (lane string, err error) {
	msg, err := s.log.Store.At(ctx, o.seq)
	if err != nil || msg == nil {
		return "", err
	}
	run := s.newKnownRun(wire.RunIDOf(msg.Header))
	if err := s.readRun(ctx, run); err != nil && !errors.Is(err, ErrRunDamaged) {
		return "", err
	}
	return run.lane, nil
}
