package service

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
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

// maxPolls bounds the requests of event.list that wait for a commit.
const maxPolls = 1024

// polls are the requests of event.list that wait for a commit. They hold no slot and no worker.
type polls struct {
	waiting atomic.Int64
	ended   sync.WaitGroup
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
	if s.polls.waiting.Add(1) > maxPolls {
		s.polls.waiting.Add(-1)
		s.refuse(in, queue.AllFull, longestPause)
		return nil
	}
	query.After = page.Cursor
	s.polls.ended.Go(func() {
		defer s.polls.waiting.Add(-1)
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
