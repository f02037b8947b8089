package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/worldfile"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/memory"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
)

// Town is a town as the log has it. In the answer to a change, LastFailure is nil.
type Town = messages.Town

// Town reads a town from the log, so that it sees other writers' commits. It returns ErrUnknownTown
// if there is no such town.
func (e *Engine) Town(ctx context.Context, townID string) (Town, error) {
	t, err := e.history.Last(ctx, townID)
	if err != nil {
		return Town{}, err
	}
	view := e.viewRevision(t)
	if view.Apply != string(apply.Local) {
		view.PluginAbsent = e.dispatcher.AbsentGame(townID)
		if since := e.absences.StartOf(townID); !since.IsZero() {
			view.PluginAbsentSince = runevents.Timestamp(since)
		}
	}
	return view, nil
}

// TownAt returns a town as it was after a revision. It returns ErrUnknownTown, or ErrRevisionGone
// if the log has no such revision of the town.
func (e *Engine) TownAt(ctx context.Context, townID string, revision uint64) (Town, error) {
	t, err := e.history.At(ctx, townID, revision)
	if err != nil {
		return Town{}, err
	}
	return e.viewRevision(t), nil
}

func (e *Engine) viewRevision(t history.Town) Town {
	view := e.viewTown(t.Town)
	view.LastFailure = t.LastFailure
	return view
}

// History returns the history of the engine's towns.
func (e *Engine) History() *history.Reader { return &e.history }

// Memory returns what reads the memory of the engine's towns.
func (e *Engine) Memory() *memory.Reader { return e.memory }

// Put stores state as the state of its town, in its turn among the town's requests. If expected is
// "", it creates the town, or returns town.ErrExists. Otherwise it replaces exactly the state whose
// hash is expected, or returns *town.ConflictError or ErrUnknownTown. If the day would be lowered,
// it returns *town.RegressionError.
func (e *Engine) Put(ctx context.Context, state town.State, expected string) (Town, error) {
	return e.put(ctx, &Put{State: state, Expected: expected})
}

func (e *Engine) put(ctx context.Context, put *Put) (Town, error) {
	reply := queue.NewFuture[Town]()
	if err := e.SubmitChange(put.State.Snapshot.TownID, put, reply); err != nil {
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
	engine      *Engine
	townID      string
	event       machine.Event
	submittedAt time.Time // when it was submitted
	client      TownAnswerer
}

// SubmitChange queues a *Put, a *Patch or a *machine.Remove of a town. client gets the changed town; of a
// removed town, its last state with the revision of the removal. If SubmitChange itself returns an error,
// client gets no answer. The change waits until no command is pending.
func (e *Engine) SubmitChange(townID string, event machine.Event, client TownAnswerer) error {
	if put, ok := event.(*Put); ok && put.Binding != "" {
		if err := e.config.mayBind(put.Binding); err != nil {
			return err
		}
	}
	return e.queue.SubmitTask(townID, &townChange{
		engine: e, townID: townID, event: event, submittedAt: time.Now(), client: client,
	})
}

// Run commits the change in its turn and answers its client, unless it waits.
func (c *townChange) Run(ctx context.Context, t queue.Turn) (next time.Time) {
	stored, waits, err := c.engine.commitChange(ctx, c, t.Behind)
	if waits && err == nil {
		if next = c.submittedAt.Add(c.engine.config.waitLimits().Absence); time.Now().Before(next) {
			return next
		}
		return queue.UntilWoken // for the game to be absent, too
	}
	c.engine.queue.Wake(c.townID)
	c.answer(stored, err)
	return next
}

// End answers the client that nothing was changed.
func (c *townChange) End(_ context.Context, why error) { c.answer(Town{}, why) }

func (c *townChange) answer(stored Town, err error) {
	c.engine.queue.MarkReplying(c.townID)
	c.client.Answer(stored, err)
}

// commitChange commits a change to the town as the log has it. The change waits for a pending
// command, and behind a waiting task. Behind a handoff that waits in a pause, it need not wait.
func (e *Engine) commitChange(
	ctx context.Context, c *townChange, behind queue.Task,
) (stored Town, waits bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	first, isHandoff := behind.(*delivery)
	mustWait := behind != nil && (!isHandoff || first.why.Kind != waiting.EndOfPause)
	err = e.log.RetryLostRaces(ctx, func() error {
		current, err := e.log.Load(ctx, c.townID)
		if err == nil && e.index.Position() >= current.LoadedSeq {
			err = e.receipts.requireIndexed(ctx, c.townID, &current)
		}
		if err != nil {
			return err
		}
		if err := e.dispatcher.Reconcile(ctx, c.townID, current); err != nil {
			return err
		}
		if current.Pending != nil {
			waits = true
			if time.Since(c.submittedAt) < e.config.waitLimits().Absence {
				return nil
			}
			return e.dispatcher.CheckGame(c.townID, current.Pending.Run.RunID, "")
		}
		if waits = mustWait; waits {
			return nil
		}
		out, err := e.stepper.Step(ctx, current, e.stepper.Input(c.townID, nil, c.event))
		if errors.Is(err, ErrUnknownTown) {
			err = fmt.Errorf("%w: %q", err, c.townID)
		}
		if err != nil {
			return err
		}
		stored = e.viewTown(out.NextTown)
		binding := apply.Binding(stored.Apply)
		if binding == apply.Local || binding != cmp.Or(current.Binding, e.config.Apply) ||
			out.NextTown.Removed != nil {
			e.absences.NoteUnneeded(c.townID)
		}
		return nil
	})
	return stored, waits, err
}

func (e *Engine) viewTown(current machine.Town) Town {
	state := current.LastState()
	t := Town{
		TownSummary: messages.TownSummary{
			TownID: state.Snapshot.TownID, SnapshotHash: state.Hash, DecisionEpoch: state.Epoch(),
			Revision: current.Seq, Apply: string(cmp.Or(current.Binding, e.config.Apply)),
			Paused: current.Paused != nil,
		},
		Snapshot: state.Snapshot, Approval: e.policyOf(current).Types,
	}
	if current.Pending != nil {
		t.PendingRunID = current.Pending.Run.RunID
	}
	return t
}

// LoadWorld creates the towns of a world file that have never existed, and leaves others as they
// are, even damaged ones. The whole file is checked before anything is stored; the error has the
// JSON path of a wrong value.
func (e *Engine) LoadWorld(ctx context.Context, file []byte) (created int, err error) {
	towns, err := worldfile.Parse(file, e.config.mayBind)
	if err != nil {
		return 0, err
	}
	for _, t := range towns {
		townID := t.State.Snapshot.TownID
		// A removed town stays removed.
		current, err := e.log.Load(ctx, townID)
		if err == nil && current.Seq != 0 {
			continue
		}
		if err == nil {
			_, err = e.put(ctx, &Put{State: t.State, ActorID: worldFile,
				Attributes: Attributes{Binding: t.Binding, Approval: t.Approval}})
		}
		switch {
		case err == nil:
			created++
		case errors.Is(err, records.ErrTownDamaged):
			e.config.Logger.Error("a town of the world file is damaged, and the others are served",
				"town", townID, "error", err)
		case !errors.Is(err, town.ErrExists):
			return created, fmt.Errorf("engine: town %q of the world file: %w", townID, err)
		}
	}
	return created, nil
}

// CheckConfig returns how many towns a world file has, or the error that would keep an engine from
// starting with the configuration and that file. file may be nil. It starts nothing.
func CheckConfig(config Config, file []byte) (towns int, err error) {
	if config, err = config.withDefaults(); err != nil || file == nil {
		return 0, err
	}
	list, err := worldfile.Parse(file, config.mayBind)
	return len(list), err
}

// policyOf returns the types of proposals that require approval in a town.
func (e *Engine) policyOf(current machine.Town) *approval.Policy {
	return cmp.Or(current.Policy, &e.config.policy)
}

// TownQuery selects towns of a list.
type TownQuery struct {
	messages.TownList
	Allowed []string // the ids of the towns that may be listed; nil for all
}

// List returns a page of the towns.
func (e *Engine) List(ctx context.Context, q TownQuery) (messages.Towns, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	page := messages.Towns{Towns: []messages.ListedTown{}}
	if q.Allowed != nil && len(q.Allowed) == 0 {
		return page, nil
	}
	all, err := e.log.Towns(ctx, layout.TownTokens(q.Allowed), e.config.Logger)
	if err == nil {
		err = e.approvals.Refresh(ctx)
	}
	if err != nil {
		return page, err
	}
	switch q.Sort {
	case messages.SortDay:
		slices.SortStableFunc(all, func(a, b records.TownHeader) int {
			return cmp.Compare(b.DecisionEpoch, a.DecisionEpoch)
		})
	case messages.SortChanged:
		slices.SortFunc(all, func(a, b records.TownHeader) int {
			return cmp.Compare(b.Revision, a.Revision)
		})
	}
	page.Total = len(all)
	state, first := e.townStates(), q.first(all)
	for i := range all {
		t := &all[i]
		view := state(t)
		if !q.matches(&view, t.Pending) {
			continue
		}
		page.Found++
		switch {
		case i < first:
		case len(page.Towns) == q.Limit:
			page.Next = page.Towns[q.Limit-1].TownID
		default:
			if t.Pending {
				view.PendingRunID = e.pendingRun(ctx, t.Token)
			}
			page.Towns = append(page.Towns, view)
		}
	}
	return page, nil
}

// first returns the index of the first town behind the town After. If that was removed, its place is lost, except in
// the order of the ids: the list begins anew and leaves no town out.
func (q *TownQuery) first(all []records.TownHeader) int {
	i := slices.IndexFunc(all, func(t records.TownHeader) bool { return t.TownID == q.After })
	if i < 0 && (q.Sort == "" || q.Sort == messages.SortID) {
		i, _ = slices.BinarySearchFunc(all, q.After, func(t records.TownHeader, after string) int {
			return strings.Compare(t.TownID, after)
		})
		return i
	}
	return i + 1
}

// townStates returns a function that adds the engine's knowledge to a listed town.
func (e *Engine) townStates() func(t *records.TownHeader) messages.ListedTown {
	waiting, absent := e.approvals.Towns(), e.absences.Towns()
	doubtful := e.index.NewestByTown(index.InDoubt)
	return func(t *records.TownHeader) messages.ListedTown {
		view := messages.ListedTown{TownSummary: t.TownSummary, Waiting: waiting[t.TownID]}
		view.Apply = cmp.Or(view.Apply, string(e.config.Apply))
		_, view.InDoubt = doubtful[t.Token]
		if since := absent[t.TownID]; !since.IsZero() && view.Apply != string(apply.Local) {
			view.PluginAbsentSince = runevents.Timestamp(since)
		}
		return view
	}
}

func (q *TownQuery) matches(t *messages.ListedTown, pending bool) bool {
	if q.Text != "" && !strings.Contains(strings.ToLower(t.TownID), strings.ToLower(q.Text)) &&
		!strings.HasPrefix(t.SnapshotHash, q.Text) {
		return false
	}
	switch q.State {
	case messages.TownPaused:
		return t.Paused
	case messages.TownApplying:
		return pending
	case messages.TownNoPlugin:
		return t.PluginAbsentSince != ""
	case messages.TownWaiting:
		return t.Waiting > 0
	case messages.TownInDoubt:
		return t.InDoubt
	}
	return true
}

// pendingRun returns the run whose command is being applied in the town with a token; "" if the run
// has ended, or the town is damaged.
func (e *Engine) pendingRun(ctx context.Context, token string) string {
	current, err := e.log.LoadToken(ctx, token)
	if err != nil || current.Pending == nil {
		return ""
	}
	return current.Pending.Run.RunID
}
