package waiting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// How long an entry of the index counts, how often it is renewed, and how much longer it may be
// until the decision about a run that was closed for it is in the log or will not come.
const (
	leaseTime   = 10 * time.Second
	leaseRenew  = 2 * time.Second
	closingTime = 30 * time.Second
)

// Index is where the ids of waiting runs are put before these are recorded.
type Index interface {
	PutWaiting(ctx context.Context, server string, w commitlog.WaitingRuns) error
	Follow(ctx context.Context, subject string, every time.Duration,
		take func(commitlog.IndexEntry), tick func()) error
	// IsLast reports whether the entry at a sequence is there and the last one of its subject.
	IsLast(ctx context.Context, subject string, seq uint64) (bool, error)
	Remove(ctx context.Context, seq uint64)
}

// Store records the runs that wait in one server. It is safe for concurrent use.
type Store struct {
	log    *commitlog.Log
	runs   *runs.Store
	index  Index
	config Config
	// trouble limits the warnings about runs that cannot be ended: a full disk is trouble for all
	// of them.
	trouble backoff.Seldom

	mu sync.Mutex
	// held are the runs of this server that are recorded, or may be, and whose end is not known, by
	// town; left are those of them that have no delivery any more, and when they lost it.
	held map[string]*heldTown
	left map[string]leftRun
}

// heldTown is a town whose runs are held.
type heldTown struct {
	runs map[string]struct{}
	// putting has room for the one who stores an entry: one that was made before another must not
	// take its place, since the newest run would have no entry then.
	putting chan struct{}
}

// leftRun is a run of this server whose delivery is answered, while the log may lack the run's end.
type leftRun struct {
	townID string
	since  time.Time
}

// Config says how a Store works. Every member must be set.
type Config struct {
	World string
	// Server is the id of this server among those of the world, a subject token of its own for each
	// start.
	Server string
	// NewProducer returns a producer of the events of a run.
	NewProducer func(runevents.Identity) *runevents.Producer
	// Ended reports whether a run has ended, once the run events have followed the log.
	Ended func(ctx context.Context, runID string) (bool, error)
	// Left is called with a run that its server left behind, once its end is stored, or with the
	// error that keeps it from being so.
	Left   func(run runevents.Identity, townID string, err error)
	Logger *slog.Logger
}

// New returns the waiting runs of a server over the log, the runs and the index of its world.
func New(log *commitlog.Log, r *runs.Store, index Index, config Config) *Store {
	return &Store{
		log: log, runs: r, index: index, config: config,
		held: map[string]*heldTown{}, left: map[string]leftRun{},
	}
}

// Hold puts the runs of a town that are recorded, or are to be recorded next, into the index, where
// a new one is among them. Without it no run may be recorded: after the death of this server no
// other one would end it. From then on Reap renews the entry, until Done is said of each of them.
func (s *Store) Hold(ctx context.Context, townID string, waiting []*Run) error {
	if !slices.ContainsFunc(waiting, func(r *Run) bool { return !r.held }) {
		return nil
	}
	if err := s.put(ctx, townID, s.hold(townID, waiting)); err != nil {
		return err
	}
	for _, r := range waiting {
		r.held = true
	}
	return nil
}

// hold adds runs to those of a town that are held.
func (s *Store) hold(townID string, waiting []*Run) *heldTown {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.held[townID]
	if t == nil {
		t = &heldTown{runs: map[string]struct{}{}, putting: make(chan struct{}, 1)}
		s.held[townID] = t
	}
	for _, r := range waiting {
		t.runs[r.Identity.RunID] = struct{}{}
	}
	return t
}

// put stores the entry of a town with what is held there now. A town where nothing is held any more
// is forgotten: its entry ends by itself.
func (s *Store) put(ctx context.Context, townID string, t *heldTown) error {
	if ctx.Err() == nil { // with both ready, select would take either
		select {
		case t.putting <- struct{}{}:
			defer func() { <-t.putting }()
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("worldengine: the waiting runs of a town: %w", ctx.Err())
	}
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(t.runs))
	if len(ids) == 0 && s.held[townID] == t {
		delete(s.held, townID)
	}
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	return s.index.PutWaiting(ctx, s.config.Server,
		commitlog.WaitingRuns{TownID: townID, Runs: ids})
}

// renew renews the entries of the towns where runs are held, until ctx is done. It does nothing
// else: whatever keeps turns, or the ends of others' runs, from coming, what waits here lives.
func (s *Store) renew(ctx context.Context) {
	troubled := false
	for backoff.Sleep(ctx, leaseRenew) == nil {
		s.mu.Lock()
		towns := maps.Clone(s.held)
		s.mu.Unlock()
		failed := s.renewAll(ctx, towns)
		if failed != nil && !troubled && ctx.Err() == nil {
			s.config.Logger.Warn("the handoffs that wait cannot be stored in the index; will try "+
				"again",
				"error", failed)
		}
		troubled = failed != nil
	}
}

// renewals is how many entries are renewed at a time.
const renewals = 32

// renewAll renews the entries of towns, and returns an error where one is not renewed. One that
// takes long does not keep the others waiting: as many are renewed meanwhile as there is room for.
func (s *Store) renewAll(ctx context.Context, towns map[string]*heldTown) error {
	due := slices.Sorted(maps.Keys(towns))
	failed := make([]error, len(due))
	var next atomic.Int64
	var renewing sync.WaitGroup
	for range min(renewals, len(due)) {
		renewing.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(due); i = int(next.Add(1)) - 1 {
				failed[i] = s.renewOne(ctx, due[i], towns[due[i]])
			}
		})
	}
	renewing.Wait()
	return cmp.Or(failed...)
}

func (s *Store) renewOne(ctx context.Context, townID string, t *heldTown) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	return s.put(ctx, townID, t)
}

// Done says that the end of a run, or the decision about it, is in the log, or that the run never
// was.
func (s *Store) Done(r *Run) {
	s.forget(r.townID(), r.Identity.RunID)
}

func (s *Store) forget(townID, runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, runID)
	if t := s.held[townID]; t != nil {
		delete(t.runs, runID)
	}
}

// Leave says that the delivery of a run is answered, and that the log may lack the end of the run
// or have it. Reap finds out.
func (s *Store) Leave(r *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[r.Identity.RunID] = leftRun{r.townID(), time.Now()}
}

// lease is an entry of the index, and when its time is over: counted from its arrival by the
// monotonic clock of this machine, since that of NATS may be set otherwise.
type lease struct {
	commitlog.WaitingRuns
	seq  uint64
	ends time.Time
}

// Reap ends the runs whose servers have left them behind, and renews what says that this one has
// its own, until ctx is done.
func (s *Store) Reap(ctx context.Context) {
	var renewing sync.WaitGroup
	renewing.Go(func() { s.renew(ctx) })
	defer renewing.Wait()
	for ctx.Err() == nil {
		leases := map[string]lease{} // by subject
		err := s.index.Follow(ctx, wire.WaitingSubject(s.config.World, "*", "*"), leaseRenew/2,
			func(entry commitlog.IndexEntry) { s.take(leases, entry) },
			func() { s.reapEnded(ctx, leases); s.reapLeft(ctx) })
		if err != nil && ctx.Err() == nil {
			s.config.Logger.Warn("the index of waiting runs cannot be followed; will try again",
				"error", err)
			_ = backoff.Sleep(ctx, time.Second)
		}
	}
}

func (s *Store) take(leases map[string]lease, entry commitlog.IndexEntry) {
	l := lease{seq: entry.Seq, ends: time.Now().Add(leaseTime)}
	if err := json.Unmarshal(entry.Data, &l.WaitingRuns); err != nil {
		s.config.Logger.Error("an entry of waiting runs cannot be read", "subject",
			entry.Subject, "error", err)
	}
	leases[entry.Subject] = l
}

// reapEnded ends the runs of the leases that have ended.
func (s *Store) reapEnded(ctx context.Context, leases map[string]lease) {
	for _, subject := range slices.Sorted(maps.Keys(leases)) {
		l := leases[subject]
		if time.Now().Before(l.ends) {
			continue
		}
		again, err := s.reapAll(ctx, subject, l)
		switch {
		case errors.Is(err, errRenewed):
			delete(leases, subject) // the later entry is still to be taken
		case err != nil && ctx.Err() == nil:
			s.config.Logger.Warn("the runs of a lease cannot be ended yet", "subject",
				subject, "error", err)
		case err == nil && len(again) > 0:
			l.Runs = again
			leases[subject] = l
		case err == nil:
			s.index.Remove(ctx, l.seq)
			delete(leases, subject)
		}
	}
}

// errRenewed says that the entry of a lease has been replaced or removed.
var errRenewed = errors.New("worldengine: the lease was renewed or removed")

// reapAll ends the runs of a lease, for as long as it may, and returns those that it has to look at
// again. Before each run it asks the index: an end takes long while the log is slow, and a renewal
// is not taken meanwhile.
func (s *Store) reapAll(ctx context.Context, subject string, l lease) (again []string, err error) {
	begun := time.Now()
	for i, runID := range l.Runs {
		if time.Since(begun) >= leaseRenew { // the others have their turn first next time
			return append(slices.Clone(l.Runs[i:]), again...), nil
		}
		last, err := s.index.IsLast(ctx, subject, l.seq)
		if err != nil {
			return nil, err
		}
		if !last {
			return nil, errRenewed
		}
		if !s.reap(ctx, runID, time.Since(l.ends)) {
			again = append(again, runID)
		}
	}
	return again, nil
}

// reapLeft ends the runs of this server that were left.
func (s *Store) reapLeft(ctx context.Context) {
	s.mu.Lock()
	left := maps.Clone(s.left)
	s.mu.Unlock()
	begun := time.Now()
	oldest := func(a, b string) int {
		return cmp.Or(left[a].since.Compare(left[b].since), cmp.Compare(a, b))
	}
	for _, runID := range slices.SortedFunc(maps.Keys(left), oldest) {
		if time.Since(begun) >= leaseRenew {
			return
		}
		if s.reap(ctx, runID, time.Since(left[runID].since)) {
			s.forget(left[runID].townID, runID)
		}
	}
}

// reapTimeout bounds the end of one run.
const reapTimeout = 10 * time.Second

// reap ends a run whose delivery is gone for some time, if it has no end. It reports whether that
// is done.
func (s *Store) reap(ctx context.Context, runID string, gone time.Duration) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	var ended *commitlog.Record
	err := s.log.Retry(ctx, func() error {
		ended = nil // the attempt before may have lost against what ended the run
		tail, err := s.log.Tail(ctx, runID, 0)
		if err != nil {
			return err
		}
		if done, err = s.over(ctx, &tail, runID); done || err != nil || tail.Closed &&
			gone < closingTime {
			return err
		}
		ended = tail.Waiting
		return s.End(ctx, &tail, lifecycle.Cancellation{
			Code:   lifecycle.CancelledLeft,
			Reason: "The server in which the handoff waited did not judge it.",
		})
	})
	if ended != nil {
		s.config.Left(ended.Run.Identity, ended.TownID, err)
	}
	if err != nil && ctx.Err() == nil && s.trouble.Ready() {
		s.config.Logger.Warn("a run that was left waiting cannot be ended yet", "run",
			runID, "error", err)
	}
	return err == nil && (done || ended != nil)
}

// over reports whether a run need not be ended: it has an end, or its command is being applied.
func (s *Store) over(ctx context.Context, tail *commitlog.RunTail, runID string) (bool, error) {
	if tail.Waiting == nil || tail.Cancelled {
		return true, nil
	}
	current, err := s.log.Load(ctx, tail.Waiting.TownID)
	switch {
	case errors.Is(err, commitlog.ErrTownDamaged):
		return false, nil
	case err != nil:
		return false, err
	case current.Pending != nil && current.Pending.Run.RunID == runID:
		return true, nil
	}
	return s.config.Ended(ctx, runID)
}
