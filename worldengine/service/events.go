package service

import (
	"cmp"
	"context"
	"time"

	"worldengine/worldengine/feed"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// defaultCommits is the default size of a page, in commits.
const defaultCommits = 100

// Bounds of the requests of event.list that wait for a commit: maxPolls in all, and maxPollsOfUser
// for one user, so that no user takes all of them. A request without a user counts by its inbox.
const (
	maxPolls       = 1024
	maxPollsOfUser = 256
)

// eventList answers with a page of commits, at once or when there is a commit. When the service
// stops, the wait ends.
func (s *Service) eventList(in *incoming, r *messages.EventListRequest) (any, error) {
	towns, err := in.rights.ReadableOf(r.TownID)
	if err != nil {
		return nil, err
	}
	var page feed.Page
	query := feed.Query{Towns: wire.TownTokens(towns), Limit: cmp.Or(r.Limit, defaultCommits)}
	if r.After == "" {
		page.Cursor, err = s.engine.Feed().End(s.ctx)
	} else if query.After, err = feed.ParseCursor(r.After); err == nil {
		page, err = s.engine.Feed().Read(s.ctx, query)
	}
	if err != nil {
		return nil, err
	}
	if !page.Idle || r.WaitMs == 0 {
		return page, nil
	}
	s.release(in)
	user := cmp.Or(in.rights.User(), in.inbox)
	if _, _, why := s.polls.take([]byte(user)); why != granted {
		s.refuse(in, allFull, longestPause)
		return nil, nil
	}
	query.After = page.Cursor
	s.polling.Go(func() {
		defer s.polls.release(user)
		until := in.start.Add(time.Duration(r.WaitMs) * time.Millisecond)
		ctx, cancel := context.WithDeadline(s.ctx, until)
		defer cancel()
		s.answer(in, func() (any, error) { return s.engine.Feed().Wait(ctx, query) })
	})
	return nil, nil
}
