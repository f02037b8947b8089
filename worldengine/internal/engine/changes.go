package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/worldfile"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// Changes changes towns without handoffs, in the turns of the towns: makes them, replaces them, edits and removes them.
// The stepper decides and commits; a change waits while the dispatcher has a command of its town. Changes is safe for
// concurrent use.
type Changes struct {
	log        *records.Log
	index      *index.Index
	receipts   *Receipts // knows whether the town is damaged
	queue      *queue.Queue
	stepper    *stepper.Stepper
	dispatcher *game.Dispatcher
	towns      *Towns // shows the changed town
	limits     waiting.Limits
	mayBind    func(apply.Binding) error
	logger     *slog.Logger
}

// Put stores state as the state of its town, in its turn among the town's requests. If expected is
// "", it creates the town, or returns town.ErrExists. Otherwise it replaces exactly the state whose
// hash is expected, or returns *town.ConflictError or ErrUnknownTown. If the day would be lowered,
// it returns *town.RegressionError.
func (c *Changes) Put(ctx context.Context, state town.State, expected string) (Town, error) {
	return c.put(ctx, &Put{State: state, Expected: expected})
}

func (c *Changes) put(ctx context.Context, put *Put) (Town, error) {
	reply := queue.NewFuture[Town]()
	if err := c.Submit(put.State.Snapshot.TownID, put, reply); err != nil {
		return Town{}, err
	}
	return reply.Wait(ctx)
}

// Put and Patch are changes of a town without a handoff. Attributes are members of a town beside
// its state; a missing one stays unchanged. ActorID is the author, for the history; "" if unknown.
type (
	Attributes = machine.Attributes
	Put        = machine.Put
	Patch      = machine.Patch
)

// TownAnswerer gets the town after a change, or the error that refused it, once.
type TownAnswerer = queue.Answerer[Town]

// worldFile is the author of the towns of a world file.
const worldFile = "world file"

// townChange is a change of a town without a handoff, on its way to an answer: a task of its town's
// queue.
type townChange struct {
	changes     *Changes
	townID      string
	event       machine.Event
	submittedAt time.Time // when it was submitted
	answerer    TownAnswerer
}

// Submit queues a *Put, a *Patch or a *machine.Remove of a town. answerer gets the changed town; of a
// removed town, its last state with the revision of the removal. If Submit itself returns an error,
// answerer gets no answer. The change waits until no command is pending.
func (c *Changes) Submit(townID string, event machine.Event, answerer TownAnswerer) error {
	if put, ok := event.(*Put); ok && put.Binding != "" {
		if err := c.mayBind(put.Binding); err != nil {
			return err
		}
	}
	return c.queue.SubmitTask(townID, &townChange{
		changes: c, townID: townID, event: event, submittedAt: time.Now(), answerer: answerer,
	})
}

// RunTurn commits the change in its turn and answers its client, unless it waits.
func (c *townChange) RunTurn(ctx context.Context, t queue.Turn) (next time.Time) {
	stored, waits, err := c.commitInTurn(ctx, t.Behind)
	if waits && err == nil {
		if next = c.submittedAt.Add(c.changes.limits.Absence); time.Now().Before(next) {
			return next
		}
		return queue.UntilWoken // for the game to be absent, too
	}
	c.changes.queue.Wake(c.townID)
	c.answer(stored, err)
	return next
}

// End answers the client that nothing was changed.
func (c *townChange) End(_ context.Context, err error) { c.answer(Town{}, err) }

func (c *townChange) answer(stored Town, err error) {
	c.changes.queue.MarkReplying(c.townID)
	c.answerer.Answer(stored, err)
}

// commitInTurn commits the change to the town as the log has it. The change waits for a pending
// command, and behind a waiting task. Behind a task that waits for the end of a pause, it need not wait.
func (c *townChange) commitInTurn(ctx context.Context, behind queue.Task) (stored Town, waits bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	mustWait := behind != nil && waitReason(behind).Kind != waiting.EndOfPause
	err = c.changes.log.RetryLostRaces(ctx, func() error {
		current, err := c.load(ctx)
		if err == nil {
			err = c.changes.dispatcher.Reconcile(ctx, c.townID, current)
		}
		if err != nil {
			return err
		}
		if waits = mustWait || current.Pending != nil; waits {
			return c.checkGame(current)
		}
		stored, err = c.commit(ctx, current)
		return err
	})
	return stored, waits, err
}

// load returns the town, unless it is known to be damaged.
func (c *townChange) load(ctx context.Context) (machine.Town, error) {
	current, err := c.changes.log.Load(ctx, c.townID)
	if err == nil && c.changes.index.Position() >= current.LoadedSeq {
		err = c.changes.receipts.requireIndexed(ctx, c.townID, &current)
	}
	return current, err
}

// checkGame returns an error if the change has waited long enough for a pending command whose game is absent.
func (c *townChange) checkGame(current machine.Town) error {
	if current.Pending == nil || time.Since(c.submittedAt) < c.changes.limits.Absence {
		return nil
	}
	return c.changes.dispatcher.CheckGame(c.townID, current.Pending.Run.RunID, "")
}

// commit makes the step of the change in a town, and ends the absence of a game that the town needs no more.
func (c *townChange) commit(ctx context.Context, current machine.Town) (stored Town, err error) {
	steps, towns := c.changes.stepper, c.changes.towns
	out, err := steps.Step(ctx, current, steps.Input(c.townID, nil, c.event))
	if errors.Is(err, ErrUnknownTown) {
		err = fmt.Errorf("%w: %q", err, c.townID)
	}
	if err != nil {
		return Town{}, err
	}
	binding := towns.bindingOf(out.NextTown)
	if binding.Spec().BuiltIn || binding != towns.bindingOf(current) || out.NextTown.Removed != nil {
		c.changes.dispatcher.Absences.NoteUnneeded(c.townID)
	}
	return towns.view(out.NextTown), nil
}

// LoadWorld creates the towns of a world file that have never existed, and leaves others as they
// are, even damaged ones. The whole file is checked before anything is stored; the error has the
// JSON path of a wrong value.
func (c *Changes) LoadWorld(ctx context.Context, file []byte) (created int, err error) {
	towns, err := worldfile.Parse(file, c.mayBind)
	if err != nil {
		return 0, err
	}
	for _, t := range towns {
		townID := t.State.Snapshot.TownID
		// A removed town stays removed.
		current, err := c.log.Load(ctx, townID)
		if err == nil && current.Seq != 0 {
			continue
		}
		if err == nil {
			_, err = c.put(ctx, &Put{State: t.State, ActorID: worldFile,
				Attributes: Attributes{Binding: t.Binding, Approval: t.Approval}})
		}
		switch {
		case err == nil:
			created++
		case errors.Is(err, records.ErrTownDamaged):
			c.logger.Error("a town of the world file is damaged, and the others are served",
				"town", townID, "error", err)
		case !errors.Is(err, town.ErrExists):
			return created, fmt.Errorf("engine: town %q of the world file: %w", townID, err)
		}
	}
	return created, nil
}
