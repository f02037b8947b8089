package worldengine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// TownQuery selects towns of a list.
type TownQuery struct {
	messages.TownList
	Only []string // the ids of those that may be listed; nil for all
}

// List returns a page of the towns.
func (e *Engine) List(ctx context.Context, q TownQuery) (messages.Towns, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	page := messages.Towns{Towns: []messages.ListedTown{}}
	var tokens []string
	if q.Only != nil {
		if len(q.Only) == 0 {
			return page, nil
		}
		for _, id := range q.Only {
			tokens = append(tokens, wire.TownToken(id))
		}
		slices.Sort(tokens)
		tokens = slices.Compact(tokens) // NATS takes each filter once
	}
	all, err := e.log.Towns(ctx, tokens, e.config.Logger)
	if err == nil {
		err = e.asked.Refresh(ctx)
	}
	if err != nil {
		return page, err
	}
	switch q.Sort {
	case messages.SortDay:
		slices.SortStableFunc(all, func(a, b commitlog.Listed) int {
			return cmp.Compare(b.DecisionEpoch, a.DecisionEpoch)
		})
	case messages.SortChanged:
		slices.SortFunc(all, func(a, b commitlog.Listed) int {
			return cmp.Compare(b.Revision, a.Revision)
		})
	}
	page.Total = len(all)
	state, begun := e.townStates(), q.After == ""
	for i := range all {
		t := &all[i]
		view := state(t)
		passes := q.passes(&view, t.Pending)
		if passes {
			page.Found++
		}
		begins := t.TownID == q.After
		if q.Sort == "" || q.Sort == messages.SortID { // the town may be gone
			begun = t.TownID > q.After
		}
		switch {
		case !begun || !passes:
		case len(page.Towns) == q.Limit:
			page.Next = page.Towns[q.Limit-1].TownID
		default:
			if t.Pending {
				view.PendingRunID = e.pendingRun(ctx, t.Token)
			}
			page.Towns = append(page.Towns, view)
		}
		begun = begun || begins
	}
	return page, nil
}

// townStates returns a function that completes a town of a list by the knowledge of the engine.
func (e *Engine) townStates() func(t *commitlog.Listed) messages.ListedTown {
	waiting, absent := e.asked.Towns(), e.absent.Towns()
	doubtful := e.index.Newest(index.InDoubt)
	return func(t *commitlog.Listed) messages.ListedTown {
		view := messages.ListedTown{TownSummary: t.TownSummary, Waiting: waiting[t.TownID]}
		view.Apply = cmp.Or(view.Apply, string(e.config.Apply))
		_, view.InDoubt = doubtful[t.Token]
		if since := absent[t.TownID]; !since.IsZero() && view.Apply != string(apply.Local) {
			view.PluginAbsentSince = runevents.Timestamp(since)
		}
		return view
	}
}

// passes reports whether a town passes the filters of a query.
func (q *TownQuery) passes(t *messages.ListedTown, pending bool) bool {
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

// pendingRun returns the run whose command is being applied in the town with a token; "" if it has
// ended, or the town is damaged.
func (e *Engine) pendingRun(ctx context.Context, token string) string {
	msg, err := e.log.LastOfToken(ctx, token)
	if err != nil || msg == nil {
		return ""
	}
	rec, err := commitlog.ReadRecord(msg.Data)
	if err != nil || rec.Pending == nil {
		return ""
	}
	return rec.Pending.Run.RunID
}
