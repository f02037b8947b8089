package service

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/wire"
)

// handoff leaves a handoff to the engine, after those that arrived before it.
func (s *Service) handoff(in *incoming) error {
	submit := func() error { return nil }
	defer func() {
		s.line.parsed(in, func() {
			if err := s.safely(submit); err != nil {
				s.fail(in, err)
			}
		})
	}()
	h, revision, err := s.parseHandoff(in)
	if err != nil {
		return err
	}
	done := func(answer worldengine.Answer, err error) {
		s.finish(in, err, func() (*nats.Msg, error) {
			took := time.Since(in.start)
			s.engine.Answered(answer.RunID, took)
			if s.config.Observer != nil {
				s.config.Observer.Handoff(answer.Result.Status, took)
			}
			body, err := resultOf(h, revision, &answer)
			header := revisionHeader(revision)
			header[wire.RunIDHeader] = []string{answer.RunID}
			return &nats.Msg{Data: body, Header: header}, err
		})
	}
	traced := trace.FromHeader(in.header)
	submit = func() error { return s.engine.SubmitTraced(h, traced, done) }
	return nil
}

// line has the handoffs that are not with the engine yet, in the order of their arrival. It is safe
// for concurrent use.
type line struct {
	mu      sync.Mutex
	waiting []*incoming
}

func (l *line) join(in *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, in)
}

// parsed has submit called when all that arrived before in were submitted.
func (l *line) parsed(in *incoming, submit func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in.submit = submit
	for len(l.waiting) > 0 && l.waiting[0].submit != nil {
		first := l.waiting[0]
		l.waiting = l.waiting[1:]
		first.submit()
		first.submit = nil
	}
}

// dryRun judges a handoff, and executes nothing.
func (s *Service) dryRun(ctx context.Context, in *incoming) (*nats.Msg, error) {
	h, revision, err := s.parseHandoff(in)
	if err != nil {
		return nil, err
	}
	judged, err := s.engine.DryRun(ctx, h)
	if err != nil {
		return nil, err
	}
	body, err := resultOf(h, revision, &judged.Answer)
	header := revisionHeader(revision)
	header[wire.DryRunHeader] = []string{"true"}
	if judged.Apply != apply.Local && judged.Result.Executed {
		header[wire.DryRunApplyHeader] = []string{string(judged.Apply)}
	}
	return &nats.Msg{Data: body, Header: header}, err
}

// parseHandoff returns a handoff and the revision of its result. It refuses a handoff about a town
// or of an actor that its sender may not speak for.
func (s *Service) parseHandoff(in *incoming) (*handoff.Handoff, handoff.Revision, error) {
	revision, err := s.revisionOf(in.header)
	if err != nil {
		return nil, 0, err
	}
	h, err := handoff.Parse(in.data, schemas.Limits{Bytes: s.config.MaxHandoff})
	if err != nil {
		return nil, 0, err
	}
	p := &h.Proposal
	return h, revision, cmp.Or(in.rights.Town(p.TownID), in.rights.Actor(p.ActorID))
}
