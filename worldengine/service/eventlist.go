package service

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

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
	r, err := parseRequest[messages.EventListRequest](schemas.EventListRequest, orEmpty(in.data))
	if err != nil {
		return err
	}
	query, err := commitsOf(in.rights, &r)
	if err != nil {
		return err
	}
	if r.After == "" {
		end, err := s.engine.Feed().End(s.ctx)
		s.finish(in, err, answerPage(feed.Page{Cursor: end}))
		return nil
	}
	page, err := s.engine.Feed().Read(s.ctx, query)
	if err != nil || !page.Idle || r.WaitMs == 0 {
		s.finish(in, err, answerPage(page))
		return nil
	}
	s.release(in)
	user := in.rights.Identity(nil).User
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
		s.finish(in, err, answerPage(page))
	})
	return nil
}

// commitsOf returns the commits that a request asks for and that its rights cover.
func commitsOf(rights access.Rights, r *messages.EventListRequest) (feed.Query, error) {
	query := feed.Query{Limit: cmp.Or(r.Limit, defaultCommits)}
	towns, bound := rights.Readable()
	if r.TownID != "" {
		towns, bound = []string{r.TownID}, true
		if err := rights.Read(r.TownID); err != nil {
			return query, err
		}
	}
	if bound {
		query.Towns = []string{}
	}
	for _, id := range towns {
		query.Towns = append(query.Towns, wire.TownToken(id))
	}
	if r.After == "" {
		return query, nil
	}
	var err error
	query.After, err = feed.ParseCursor(r.After)
	return query, err
}

// answerPage returns a function that makes the answer with a page.
func answerPage(page feed.Page) func() (*nats.Msg, error) {
	return func() (*nats.Msg, error) {
		return reply(struct {
			Commits []jsontext.Value `json:"commits"`
			Cursor  string           `json:"cursor"`
			Gap     bool             `json:"gap,omitzero"`
		}{page.Commits, strconv.FormatUint(page.Cursor, 10), page.Gap})
	}
}
