package service

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/access"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// defaultCommits is the default size of a page, in commits.
const defaultCommits = 100

// Bounds of the requests of event.list that wait for a commit: of all, and of one user, so that
// nobody keeps the others from waiting. Requests without a user share the bound of all.
const (
	maxPolls       = 1024
	maxPollsOfUser = 256
)

// polls are the requests of event.list that wait for a commit. They hold no slot and no worker.
type polls struct {
	ended sync.WaitGroup

	mu      sync.Mutex
	waiting int
	of      map[string]int // by user
}

// enter counts one more request of a user, unless too many wait.
func (p *polls) enter(user string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == maxPolls || user != "" && p.of[user] == maxPollsOfUser {
		return false
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.waiting++
	p.of[user]++
	return true
}

// leave counts one less.
func (p *polls) leave(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	if p.of[user]--; p.of[user] == 0 {
		delete(p.of, user)
	}
}

// eventList answers with a page of commits, at once or when there is a commit. The end of the
// service ends the wait.
func (s *Service) eventList(in *incoming) error {
	var r messages.EventListRequest
	if err := parse(in.endpoint.Verb, in.data, &r); err != nil {
		return err
	}
	query, err := queryOf(in.rights, &r)
	if err != nil {
		return err
	}
	if r.After == "" {
		end, err := s.engine.Feed().End(s.ctx)
		s.finish(in, err, pageOf(feed.Page{Cursor: end}))
		return nil
	}
	page, err := s.engine.Feed().Read(s.ctx, query)
	if err != nil || !page.Idle || r.WaitMs == 0 {
		s.finish(in, err, pageOf(page))
		return nil
	}
	s.release(in)
	user := in.rights.User()
	if !s.polls.enter(user) {
		s.refuse(in, queue.AllFull, longestPause)
		return nil
	}
	query.After = page.Cursor
	s.polls.ended.Go(func() {
		defer s.polls.leave(user)
		until := in.start.Add(time.Duration(r.WaitMs) * time.Millisecond)
		ctx, cancel := context.WithDeadline(s.ctx, until)
		defer cancel()
		page, err := s.engine.Feed().Wait(ctx, query)
		s.finish(in, err, pageOf(page))
	})
	return nil
}

// queryOf returns the commits that a request asks for and that its rights cover.
func queryOf(rights access.Rights, r *messages.EventListRequest) (query feed.Query, err error) {
	towns, err := rights.ReadableOf(r.TownID)
	if err != nil {
		return query, err
	}
	query.Towns = wire.TownTokens(towns)
	query.Limit = cmp.Or(r.Limit, defaultCommits)
	if r.After != "" {
		query.After, err = feed.ParseCursor(r.After)
	}
	return query, err
}

// pageOf returns a function that makes the answer with a page.
func pageOf(page feed.Page) func() (any, error) {
	return func() (any, error) {
		return struct {
			Commits []jsontext.Value `json:"commits"`
			Cursor  string           `json:"cursor"`
			Gap     bool             `json:"gap,omitzero"`
		}{page.Commits, strconv.FormatUint(page.Cursor, 10), page.Gap}, nil
	}
}
