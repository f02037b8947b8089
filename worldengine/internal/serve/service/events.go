package service

import (
	"cmp"
	"context"
	"time"

	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/messages"
)

// defaultCommits is the default size of a page, in commits.
const defaultCommits = 100

// Bounds of the requests of event.list that wait for a commit: maxPolls in all, and maxPollsOfUser
// for one user, so that no user has all of them. A request without a user counts by its inbox.
const (
	maxPolls       = 1024
	maxPollsOfUser = 256
)

// eventList answers with a page of commits, at once or when there is a commit. When the service
// stops, the wait ends.
func (w *ServedWorld) eventList(in *incoming, r *messages.EventListRequest) (any, error) {
	towns, err := in.rights.ReadableOf(r.TownID)
	if err != nil {
		return nil, err
	}
	var page feed.Page
	query := feed.Query{Towns: layout.TownTokens(towns), Limit: cmp.Or(r.Limit, defaultCommits)}
	if r.After == "" {
		page.Cursor, err = w.engine.Feed().End(w.ctx)
	} else if query.After, err = feed.ParseCursor(r.After); err == nil {
		page, err = w.engine.Feed().Read(w.ctx, query)
	}
	if err != nil {
		return nil, err
	}
	if !page.Idle || r.WaitMs == 0 {
		return page, nil
	}
	w.release(in)
	owner, _, reason := w.service.pollSlots.acquire(w.config.World, []byte(cmp.Or(in.rights.User(), in.inbox)))
	if reason != granted {
		w.shed(in, max(reason, worldFull), maxRetryAfter)
		return nil, nil
	}
	query.After = page.Cursor
	w.polling.Go(func() {
		defer w.service.pollSlots.release(owner)
		ctx, cancel := context.WithDeadline(w.ctx, in.start.Add(time.Duration(r.WaitMs)*time.Millisecond))
		defer cancel()
		w.answer(in, func() (any, error) { return w.engine.Feed().Wait(ctx, query) })
	})
	return nil, nil
}
