package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/approvals"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
)

// Town is a town as the log has it. In the answer to a change, LastFailure is nil.
type Town = messages.Town

// Towns shows the towns of a world as its log and index have them, with the proposals that wait for a person and the
// absent games. It changes nothing. Towns is safe for concurrent use.
type Towns struct {
	log        *records.Log
	history    *history.Reader
	index      *index.Index
	approvals  *approvals.Reader
	dispatcher *game.Dispatcher
	binding    apply.Binding    // of towns without a binding
	policy     *approval.Policy // of towns without a policy
	logger     *slog.Logger
}

// Get reads a town from the log, so that it sees other writers' commits. It returns ErrUnknownTown
// if there is no such town.
func (t *Towns) Get(ctx context.Context, townID string) (Town, error) {
	last, err := t.history.Last(ctx, townID)
	if err != nil {
		return Town{}, err
	}
	view := t.viewRevision(last)
	if !apply.Binding(view.Apply).Spec().BuiltIn {
		view.PluginAbsent = t.dispatcher.AbsentGame(townID)
		if since := t.dispatcher.Absences.StartOf(townID); !since.IsZero() {
			view.PluginAbsentSince = runevents.Timestamp(since)
		}
	}
	return view, nil
}

// At returns a town as it was after a revision. It returns ErrUnknownTown, or ErrRevisionGone
// if the log has no such revision of the town.
func (t *Towns) At(ctx context.Context, townID string, revision uint64) (Town, error) {
	then, err := t.history.At(ctx, townID, revision)
	if err != nil {
		return Town{}, err
	}
	return t.viewRevision(then), nil
}

func (t *Towns) viewRevision(revision history.Town) Town {
	view := t.view(revision.Town)
	view.LastFailure = revision.LastFailure
	return view
}

func (t *Towns) view(current machine.Town) Town {
	state := current.LastState()
	view := Town{
		TownSummary: messages.TownSummary{
			TownID: state.Snapshot.TownID, SnapshotHash: state.Hash, DecisionEpoch: state.Epoch(),
			Revision: current.Seq, Apply: string(t.bindingOf(current)), Paused: current.Paused != nil,
		},
		Snapshot: state.Snapshot, Approval: cmp.Or(current.Policy, t.policy).Types,
	}
	if current.Pending != nil {
		view.PendingRunID = current.Pending.Run.RunID
	}
	return view
}

// bindingOf returns the binding of a town: its own, or the world's.
func (t *Towns) bindingOf(current machine.Town) apply.Binding {
	return cmp.Or(current.Binding, t.binding)
}

// TownQuery selects towns of a list.
type TownQuery struct {
	messages.TownList
	Allowed []string // the ids of the towns that may be listed; nil for all
}

// List returns a page of the towns.
func (t *Towns) List(ctx context.Context, q TownQuery) (messages.Towns, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	page := messages.Towns{Towns: []messages.ListedTown{}}
	if q.Allowed != nil && len(q.Allowed) == 0 {
		return page, nil
	}
	all, err := t.log.Towns(ctx, layout.TownTokens(q.Allowed), t.logger)
	if err == nil {
		err = t.approvals.Refresh(ctx)
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
	state, first := t.states(), q.first(all)
	for i := range all {
		header := &all[i]
		view := state(header)
		if !q.matches(&view, header.Pending) {
			continue
		}
		page.Found++
		switch {
		case i < first:
		case len(page.Towns) == q.Limit:
			page.Next = page.Towns[q.Limit-1].TownID
		default:
			if header.Pending {
				view.PendingRunID = t.pendingRun(ctx, header.Token)
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

// states returns a function that adds the engine's knowledge to a listed town.
func (t *Towns) states() func(*records.TownHeader) messages.ListedTown {
	waiting, absent := t.approvals.Towns(), t.dispatcher.Absences.Towns()
	doubtful := t.index.NewestByTown(index.InDoubt)
	return func(header *records.TownHeader) messages.ListedTown {
		view := messages.ListedTown{TownSummary: header.TownSummary, Waiting: waiting[header.TownID]}
		view.Apply = cmp.Or(view.Apply, string(t.binding))
		_, view.InDoubt = doubtful[header.Token]
		if since := absent[header.TownID]; !since.IsZero() && !apply.Binding(view.Apply).Spec().BuiltIn {
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
func (t *Towns) pendingRun(ctx context.Context, token string) string {
	current, err := t.log.LoadToken(ctx, token)
	if err != nil || current.Pending == nil {
		return ""
	}
	return current.Pending.Run.RunID
}

// Count returns how many towns there are.
func (t *Towns) Count(ctx context.Context) (uint64, error) {
	all, err := commitlog.SubjectsOf(ctx, t.log.Stream, layout.LogSubject(t.log.World, "*"))
	_, _ = t.index.CatchUp(ctx) // without it, towns that were just removed would count
	n := uint64(len(all))
	return n - min(n, uint64(len(t.index.Towns(index.Removed)))), err
}
