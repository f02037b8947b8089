// Package appends is the append authority for producers other than the engine: it persists their events in the
// commit log, on the subject of their run, guarded like the commits of a town (RunEvents v2).
package appends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/projector"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// Authority appends to the runs of a world. It is safe for concurrent use.
type Authority struct {
	log       *records.Log
	projector *projector.Projector
	queue     *queue.Queue // gives each run its turns
	now       func() time.Time
	cache     cache
}

// New returns the Authority over the log of a world. now is the clock that persistedAt is compared with.
func New(log *records.Log, p *projector.Projector, turns *queue.Queue, now func() time.Time) *Authority {
	return &Authority{log: log, projector: p, queue: turns, now: now}
}

// Forget makes appends read their runs anew: the log may have lost its end.
func (a *Authority) Forget() { a.cache.clear() }

// Append persists events of one run, together or not at all, and returns the runSeq and time of each, in the
// order of writes.
//
// A new event gets the run's next runSeq, from one sequence for all producers, and the append
// authority's time as its persistedAt. If the run has an event with the same (runId,
// idempotencyKey), nothing is stored, and the write gets that event's eventId, runSeq and
// persistedAt. If that event has expired, the write may be stored again with a new runSeq. A run of
// which nothing is kept begins at runSeq 1 again. Events of unknown types are stored like any
// others.
//
// Writes are refused as a whole. The error is a *schemas.ValidationError with the paths of a
// run-append-request.v1; a *runlog.OwnedError or *runlog.TransitionError, as the projector's
// policy says; runlog.ErrRunEnding while the engine is about to end the run; runlog.ErrRunEnded
// after the end; records.ErrRunFull; or the error of Sender.MayRead. After any other error the writes may have been
// stored; appending them again is safe, and shows whether they were.
func (a *Authority) Append(
	ctx context.Context, townID string, writes []runevents.Write,
) ([]runevents.Appended, error) {
	reply := queue.NewFuture[[]runevents.Appended]()
	if err := a.Submit(Sender{Name: AnonymousSender}, townID, writes, reply); err != nil {
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

// AnonymousSender is the name of a sender that has none, for instance without access control.
const AnonymousSender = "anyone"

// Submit is Append for a caller that does not wait: answerer gets the answer. Appends to one run are
// done in the order of their submission. After an error of Submit itself (a
// *schemas.ValidationError, queue.ErrOverloaded, queue.ErrStopping) answerer gets no answer.
// The writes must not be changed before the answer.
func (a *Authority) Submit(
	from Sender, townID string, writes []runevents.Write,
	answerer queue.Answerer[[]runevents.Appended],
) error {
	if err := runlog.CheckAppend(writes); err != nil {
		return err
	}
	// A run has turns as a town has. A town with this name as its id would share the run's turns,
	// which is harmless.
	return a.queue.Submit("run "+writes[0].RunID, func(ctx context.Context) {
		appended, err := []runevents.Appended(nil), queue.ErrPanicked
		defer func() { answerer.Answer(appended, err) }()
		appended, err = a.append(ctx, from, townID, writes)
	})
}

const appendingTimeout = 10 * time.Second

// append decides about writes, and stores the new ones, guarded by the last message on the run's
// subject. It is called in the run's turn. After a lost race, and before it refuses writes of a run
// that it has not just read, it reads the run from its beginning: events may have expired.
func (a *Authority) append(
	ctx context.Context, from Sender, townID string, writes []runevents.Write,
) (appended []runevents.Appended, err error) {
	ctx, cancel := context.WithTimeout(ctx, appendingTimeout)
	defer cancel()
	err = a.log.RetryLostRaces(ctx, func() error {
		generation := a.cache.generation.Load() // first, so that Forget also counts while the run is read
		run, fresh, err := a.run(ctx, writes[0].RunID)
		if err != nil {
			return err
		}
		plan, err := a.plan(run, from, townID, writes)
		if err != nil && !fresh {
			return commitlog.ErrLostRace
		}
		if err != nil {
			a.cache.put(run, generation)
			return err
		}
		plan.Run.AppendedBy = from.Name
		appended, err = a.store(ctx, run, townID, &plan)
		if err == nil || errors.Is(err, records.ErrRunFull) {
			a.cache.put(run, generation)
		}
		return err
	})
	return appended, err
}

// run returns a run, and whether it has just been read from the log. The run is read unless the cache has
// it, and also while the engine has not ended a run of its own: the engine adds to it too.
func (a *Authority) run(ctx context.Context, runID string) (run *projector.Projection, fresh bool, err error) {
	if run = a.cache.remove(runID); run == nil {
		run = a.projector.NewProjection(runID)
	} else if !run.State.Open() {
		return run, false, nil
	}
	return run, true, a.projector.Follow(ctx, run)
}

// plan is State.Plan, and also checks the town of the run. Duplicates may name any town, since
// the town is no part of their key. If the sender may not read the run, it gets the refusal that a
// run without events would give or, if that would not refuse, MayRead's error.
func (a *Authority) plan(
	run *projector.Projection, from Sender, townID string, writes []runevents.Write,
) (runlog.Plan, error) {
	if run.Town != "" && from.MayRead != nil {
		if unreadable := from.MayRead(run.Town); unreadable != nil {
			_, err := a.projector.NewProjection(run.RunID).State.Plan(writes)
			return runlog.Plan{}, cmp.Or(err, unreadable)
		}
	}
	plan, err := run.State.Plan(writes)
	if err == nil && len(plan.Run.Events) > 0 && run.Town != "" &&
		run.Town != wire.TownToken(townID) {
		err = schemas.Invalid(schemas.RunAppendRequest, schemas.Violation{
			Path: "/townId", Message: "must be the town that the run is of",
		})
	}
	return plan, err
}

// store commits the new events, adds them to run, and returns the answer.
func (a *Authority) store(
	ctx context.Context, run *projector.Projection, townID string, plan *runlog.Plan,
) ([]runevents.Appended, error) {
	if len(plan.Run.Events) == 0 {
		return plan.Results(time.Time{}), nil
	}
	rec := &machine.Record{Kind: machine.KindAppended, TownID: townID, Run: &plan.Run,
		Inconsistent: plan.Inconsistent}
	if err := a.checkSize(rec); err != nil {
		return nil, err
	}
	if err := a.checkRunLimit(ctx, run, plan.Run.Events); err != nil {
		return nil, err
	}
	msg, err := a.log.RunMessage(rec)
	if err != nil {
		return nil, err
	}
	seq, err := a.log.Commit(ctx, msg, run.Guard)
	if err != nil {
		return nil, err
	}
	at := commitlog.PersistedAt(msg.Header, time.Time{})
	return plan.Results(at), a.projector.Add(run, rec, seq, at)
}

// checkRunLimit returns records.ErrRunFull if the log would discard the first events of the run to store
// some more. Before it refuses, it counts those that have not expired.
func (a *Authority) checkRunLimit(ctx context.Context, run *projector.Projection, events []runlog.Event) (err error) {
	use := records.RunPriorityAppend
	if slices.ContainsFunc(events, func(e runlog.Event) bool { return e.EventType.EndsRun() }) {
		use = records.RunPriorityPause
	}
	if a.log.CheckRunRoom(run.Stored, use) == nil {
		return nil
	}
	if run.Stored, err = a.log.CountMessages(ctx, layout.RunSubject(a.log.World, layout.RunToken(run.RunID))); err != nil {
		return err
	}
	return a.log.CheckRunRoom(run.Stored, use)
}

// checkSize returns commitlog.ErrRecordTooLarge if event.list could not answer with the events of a record.
// The log packs a record, so the record itself may be small enough.
func (a *Authority) checkSize(rec *machine.Record) error {
	bodies, err := rec.Run.RecordsJSON(a.now())
	size := 1<<10 + 6*len(rec.TownID) // of the commit message without its events, at most
	for _, body := range bodies {
		size += len(body) + 1
	}
	if most := a.log.MaxPayload(); err == nil && int64(size) > most {
		err = fmt.Errorf("%w: the events have %d bytes, at most %d", commitlog.ErrRecordTooLarge, size,
			most)
	}
	return err
}
