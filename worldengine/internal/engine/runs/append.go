package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

// Append is the append authority for producers other than the engine. It persists events of one
// run, together or not at all, and returns the runSeq and time of each, in the order of writes.
//
// A new event gets the run's next runSeq, from one sequence for all producers, and the append
// authority's time as its persistedAt. If the run has an event with the same (runId,
// idempotencyKey), nothing is stored, and the write gets that event's eventId, runSeq and
// persistedAt. If that event has expired, the write may be stored again with a new runSeq. A run of
// which nothing is kept begins at runSeq 1 again. Events of unknown types are stored like any
// others.
//
// Writes are refused as a whole. The error is a *schemas.ValidationError with the paths of a
// run-append-request.v1; a *runevents.OwnedError or *runevents.TransitionError, as Config.Appends
// says; runevents.ErrRunEnding while the engine is about to end the run; runevents.ErrRunEnded
// after the end; commitlog.ErrRunFull; or the error of Sender.MayRead. After any other error the writes may have been
// stored; appending them again is safe, and shows whether they were.
func (s *Store) Append(
	ctx context.Context, townID string, writes []runevents.Write,
) ([]runevents.Appended, error) {
	reply := queue.NewReply[[]runevents.Appended]()
	if err := s.Submit(Sender{Name: Anyone}, townID, writes, reply); err != nil {
		return nil, err
	}
	return reply.Wait(ctx)
}

// Sender is a producer that appends.
type Sender struct {
	// Name is the appendedBy of the events.
	Name string
	// MayRead returns an error, the same for all towns, if the sender may not read the runs of the
	// town with a token. MayRead is nil if the sender may read all towns.
	MayRead func(townToken string) error
}

// Anyone is the name of a sender that has none, for instance without access control.
const Anyone = "anyone"

// Submit is Append for a caller that does not wait: client gets the answer. Appends to one run are
// done in the order of their submission. After an error of Submit itself (a
// *schemas.ValidationError, queue.ErrOverloaded, queue.ErrStopping) client gets no answer.
// The writes must not be changed before the answer.
func (s *Store) Submit(
	from Sender, townID string, writes []runevents.Write,
	client queue.Client[[]runevents.Appended],
) error {
	if err := runevents.CheckAppend(writes); err != nil {
		return err
	}
	// A run has turns as a town has. A town with this name as its id would share the run's turns,
	// which is harmless.
	return s.Queue.Submit("run "+writes[0].RunID, func(ctx context.Context) {
		appended, err := []runevents.Appended(nil), queue.ErrPanicked
		defer func() { client.Answer(appended, err) }()
		appended, err = s.append(ctx, from, townID, writes)
	})
}

const appendingTimeout = 10 * time.Second

// append decides about writes, and stores the new ones, guarded by the last message on the run's
// subject. It is called in the run's turn. After a lost race, and before it refuses writes of a run
// that it has not just read, it reads the run from its beginning: events may have expired.
func (s *Store) append(
	ctx context.Context, from Sender, townID string, writes []runevents.Write,
) (appended []runevents.Appended, err error) {
	ctx, cancel := context.WithTimeout(ctx, appendingTimeout)
	defer cancel()
	err = s.log.Retry(ctx, func() error {
		run, fresh, err := s.known(ctx, writes[0].RunID)
		if err != nil {
			return err
		}
		plan, err := s.plan(run, from, townID, writes)
		if err != nil && !fresh {
			return commitlog.ErrLostRace
		}
		if err != nil {
			s.cache.keep(run)
			return err
		}
		plan.Run.AppendedBy = from.Name
		appended, err = s.store(ctx, run, townID, &plan)
		if err == nil || errors.Is(err, commitlog.ErrRunFull) {
			s.cache.keep(run)
		}
		return err
	})
	return appended, err
}

// known returns a run, and whether it has just been read from the log. It reads the run if the
// cache lacks it, or if the engine has not ended it.
func (s *Store) known(ctx context.Context, runID string) (run *knownRun, fresh bool, err error) {
	if run = s.cache.take(runID); run == nil {
		run = s.newKnownRun(runID)
	} else if !run.state.Open() {
		return run, false, nil
	}
	return run, true, s.readRun(ctx, run)
}

func (s *Store) newKnownRun(runID string) *knownRun {
	return &knownRun{
		runID: runID, epoch: s.cache.epoch.Load(),
		state: runevents.NewRunState(runID, s.config.Appends),
	}
}

// plan is RunState.Plan, and also checks the town of the run. Duplicates may name any town, since
// the town is no part of their key. If the sender may not read the run, it gets the refusal that a
// run without events would give or, if that would not refuse, MayRead's error.
func (s *Store) plan(
	run *knownRun, from Sender, townID string, writes []runevents.Write,
) (runevents.Plan, error) {
	if run.token != "" && from.MayRead != nil {
		if unreadable := from.MayRead(run.token); unreadable != nil {
			_, err := s.newKnownRun(run.runID).state.Plan(writes)
			return runevents.Plan{}, cmp.Or(err, unreadable)
		}
	}
	plan, err := run.state.Plan(writes)
	if err == nil && len(plan.Run.Events) > 0 && run.token != "" &&
		run.token != wire.TownToken(townID) {
		err = schemas.Invalid(schemas.RunAppendRequest, schemas.Violation{
			Path: "/townId", Message: "must be the town that the run is of",
		})
	}
	return plan, err
}

// store commits the new events, adds them to run, and returns the answer.
func (s *Store) store(
	ctx context.Context, run *knownRun, townID string, plan *runevents.Plan,
) ([]runevents.Appended, error) {
	if len(plan.Run.Events) == 0 {
		return plan.Results(time.Time{}), nil
	}
	rec := &commitlog.Record{Kind: commitlog.KindEvents, TownID: townID, Run: &plan.Run,
		Inconsistent: plan.Inconsistent}
	if err := s.fits(rec); err != nil {
		return nil, err
	}
	if err := s.hasRoom(ctx, run, plan.Run.Events); err != nil {
		return nil, err
	}
	msg, err := s.log.RunMessage(rec)
	if err != nil {
		return nil, err
	}
	seq, err := s.log.Commit(ctx, msg, run.guard)
	if err != nil {
		return nil, err
	}
	at := commitlog.AtOr(msg.Header, time.Time{})
	return plan.Results(at), s.take(run, rec, seq, at)
}

// hasRoom returns commitlog.ErrRunFull if the log would discard the first events of the run to store
// some more. Before it refuses, it counts those that have not expired.
func (s *Store) hasRoom(ctx context.Context, run *knownRun, events []runevents.Event) (err error) {
	use := commitlog.RunAppend
	if slices.ContainsFunc(events, func(e runevents.Event) bool { return e.EventType.EndsRun() }) {
		use = commitlog.RunPause
	}
	if s.log.CheckRun(run.stored, use) == nil {
		return nil
	}
	if run.stored, err = s.log.Stored(ctx, wire.RunSubject(s.log.World, wire.RunToken(run.runID))); err != nil {
		return err
	}
	return s.log.CheckRun(run.stored, use)
}

// fits returns commitlog.ErrRecordTooLarge if event.list could not answer with the events of a record.
// The log packs a record, so the record itself may be small enough.
func (s *Store) fits(rec *commitlog.Record) error {
	bodies, err := rec.Run.RecordsJSON(s.config.Now())
	size := 1<<10 + 6*len(rec.TownID) // of the commit message without its events, at most
	for _, body := range bodies {
		size += len(body) + 1
	}
	if most := s.log.MaxPayload(); err == nil && int64(size) > most {
		err = fmt.Errorf("%w: the events have %d bytes, at most %d", commitlog.ErrRecordTooLarge, size,
			most)
	}
	return err
}

// readRun reads the records of a run that this writer does not know yet, including the engine's
// commits. If they skip a runSeq, it reads the run again from its beginning.
func (s *Store) readRun(ctx context.Context, run *knownRun) error {
	if _, err := s.index.Sync(ctx); err != nil {
		return err
	}
	found, _ := s.index.Run(run.runID, run.read)
	begun := run.last > 0
	for i := range found.Rows {
		row := &found.Rows[i]
		rec, at, err := s.record(ctx, row)
		if errors.Is(err, ErrUnknownRun) { // expired
			run.cut = true
			continue
		}
		if err == nil && begun && s.skips(run, rec.Run.Records(at)) {
			*run = *s.newKnownRun(run.runID)
			return s.readRun(ctx, run)
		}
		if err == nil {
			err = s.take(run, rec, row.Seq, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
