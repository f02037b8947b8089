package service

import (
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/wire"
)

// request is a handoff on its way from NATS to its town's queue.
type request struct {
	reply  replyTo
	slot   *slot
	data   []byte
	rights access.Rights
	// revision is that of the result in the answer.
	revision handoff.Revision
	trace    trace.Context
	parsed   chan struct{} // closed when handoff and err are set
	handoff  *handoff.Handoff
	err      error
}

// takeHandoff is called for one request at a time, in the order of their arrival, so it only
// decides whether there is room.
func (s *Service) takeHandoff(r *incoming) {
	if len(r.data) > s.config.MaxHandoff {
		s.failOnArrival(r.reply, tooLarge(len(r.data), s.config.MaxHandoff))
		return
	}
	revision, err := s.revisionOf(r.header)
	if err != nil {
		s.failOnArrival(r.reply, err)
		return
	}
	dry, err := isDryRun(r.header)
	if err != nil {
		s.failOnArrival(r.reply, err)
		return
	}
	if dry {
		s.dryRun(r, revision)
		return
	}
	bytes := requestBytes + handoffWeight*int64(len(r.data))
	held := s.admit(r, s.changes, s.townOf(r.rights, r.data), bytes)
	if held == nil {
		return
	}
	next := &request{
		reply: r.reply, slot: held, data: r.data, rights: r.rights, revision: revision,
		trace: trace.FromHeader(r.header), parsed: make(chan struct{}),
	}
	// Both channels have room for every request that has a slot.
	s.ordered <- next
	s.decode <- next
}

// townOf returns the town that a request with these rights counts for: none where the rights do not
// cover the town that the request seems to be about, so that no client takes slots of others'
// towns.
func (s *Service) townOf(rights access.Rights, data []byte) []byte {
	town := peekID(aboutTown, data)
	if s.config.Access != nil && rights.Town(string(town)) != nil {
		return nil
	}
	return town
}

func (s *Service) decodeHandoffs() {
	limits := schemas.Limits{Bytes: s.config.MaxHandoff}
	for r := range s.decode {
		s.decodeSafely(r, limits)
	}
}

// decodeSafely keeps a defect in the reading of one handoff from taking the service down.
func (s *Service) decodeSafely(r *request, limits schemas.Limits) {
	defer close(r.parsed)
	r.err = s.safely(func() (err error) {
		data := r.data
		r.data = nil // it is not kept longer than it is needed
		if r.handoff, err = handoff.Parse(data, limits); err != nil {
			return err
		}
		return mayHandOff(r.rights, r.handoff)
	})
}

func (s *Service) submitHandoffs() {
	for r := range s.ordered {
		<-r.parsed
		if r.err == nil {
			r.err = s.engine.SubmitTraced(r.handoff, r.trace,
				func(answer worldengine.Answer, err error) {
					s.answerHandoff(r, answer, err)
				})
		}
		if r.err != nil {
			s.failHeld(r.slot, r.reply, r.err)
		}
	}
}

func (s *Service) answerHandoff(r *request, answer worldengine.Answer, err error) {
	s.finish(r.slot, r.reply, func() (*nats.Msg, error) {
		if err != nil {
			return nil, err
		}
		if s.config.Observer != nil {
			s.config.Observer.Handoff(answer.Result.Status, time.Since(r.reply.start))
		}
		body, err := resultOf(r, &answer)
		header := revisionHeader(r.revision)
		header[wire.RunIDHeader] = []string{answer.RunID}
		return &nats.Msg{Data: body, Header: header}, err
	})
}
