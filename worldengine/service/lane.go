package service

import (
	"context"
	"errors"
	"runtime"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/worldengine"
)

// Bounds of what readers work on, each verb by readers of its own.
const (
	// waitingLists takes the place of Config.Waiting for the verbs that read through a world. Their requests
	// name no town, mostly, so it is what a burst of them may be.
	waitingLists = 128
	// requestBytes is what a request counts for of Config.MaxHeld beside its payload.
	requestBytes = 1 << 10
	// What a byte of a request is taken to need in memory: its text and what was read of it. A patch is
	// kept as a tree, which takes some thirty times the memory of its text at worst.
	handoffWeight = 3
	changeWeight  = 4
	patchWeight   = 30
	readWeight    = 2
)

// lane is one verb's way to its readers. Its channel has room for all that has a place, so whoever has
// one never waits to get in.
type lane struct {
	places *places
	work   chan func()
}

// addLane makes a lane with readers of its own.
func (s *Service) addLane(in *places, readers int) *lane {
	l := &lane{places: in, work: make(chan func(), in.total)}
	s.lanes = append(s.lanes, l)
	for range readers {
		s.workers.Go(func() {
			for work := range l.work {
				work()
			}
		})
	}
	return l
}

// parsers returns how many readers a verb has whose requests are only read and left to the engine. More
// than processors would take more memory, not less time.
func (s *Service) parsers() int { return min(s.config.Readers, runtime.GOMAXPROCS(0)) }

// addPlaces makes places that the statistics count.
func (s *Service) addPlaces(perTown, total int) *places {
	p := newPlaces(perTown, total)
	s.places = append(s.places, p)
	return p
}

// reads makes the handler of a verb that only reads, and whose member about says what it is asked about: a
// town, a run or a key. At most waiting of its requests may wait about one of these, or about none, and twice
// as many altogether.
func (s *Service) reads(
	about member, waiting int, handle func(context.Context, []byte) ([]byte, error),
) func(micro.Request) {
	l := s.addLane(s.addPlaces(waiting, 2*waiting), s.config.Readers)
	return func(r micro.Request) {
		reply, data := r.Reply(), r.Data()
		if len(data) > maxRequest {
			s.fail(reply, tooLarge(len(data), maxRequest))
			return
		}
		p := s.admit(r, l.places, guess(about, data), requestBytes+readWeight*int64(len(data)))
		s.enqueue(l, p, reply, func() error {
			body, err := handle(s.ctx, data)
			if err == nil {
				p.giveBack()
				s.respond(&nats.Msg{Subject: reply, Data: body})
			}
			return err
		})
	}
}

// enqueue leaves the work of a request that has a place to a reader; p is nil for one that was refused.
// An error of work, and a panic, is answered, and gives the place back.
func (s *Service) enqueue(l *lane, p *place, reply string, work func() error) {
	if p == nil {
		return
	}
	l.work <- func() {
		if err := s.safely(work); err != nil {
			s.failHeld(p, reply, err)
		}
	}
}

// conclude answers a request that has a place with what answer returns, and gives its place back. An error,
// and a panic, is answered too.
func (s *Service) conclude(p *place, reply string, answer func() (*nats.Msg, error)) {
	var msg *nats.Msg
	err := s.safely(func() (err error) {
		msg, err = answer()
		return err
	})
	if err != nil {
		s.failHeld(p, reply, err)
		return
	}
	p.giveBack()
	msg.Subject = reply
	s.respond(msg)
}

// failHeld answers a request that has a place with err, and gives its place back.
func (s *Service) failHeld(p *place, reply string, err error) {
	pause := p.in.pause(p.town)
	p.giveBack()
	if errors.Is(err, worldengine.ErrOverloaded) {
		s.refuse(s.replies, reply, fullQueue, pause)
		return
	}
	s.fail(reply, err)
}
