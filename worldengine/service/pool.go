package service

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"strconv"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// Bounds of what the workers of a verb have to do.
const (
	// waitingLists is used instead of Config.Waiting for the verbs that read through a world. Most
	// of their requests name no town, so it bounds a burst of them.
	waitingLists = 128
	// requestBytes is what a request counts for of Config.MaxHeld beside its payload.
	requestBytes = 1 << 10
	// What a byte of a request is taken to need in memory: its text and what was read of it. A
	// patch is kept as a tree, which takes some thirty times the memory of its text at worst.
	handoffWeight = 3
	changeWeight  = 4
	patchWeight   = 30
	readWeight    = 2
)

// pool is the workers of one verb. Its channel has room for every request that has a slot, so a
// request with a slot never waits to get in.
type pool struct {
	slots *queue.Slots
	work  chan func()
}

// addPool makes a pool with its own workers.
func (s *Service) addPool(slots *queue.Slots, workers int) *pool {
	p := &pool{slots: slots, work: make(chan func(), slots.Total())}
	s.pools = append(s.pools, p)
	for range workers {
		s.workers.Go(func() {
			for work := range p.work {
				work()
			}
		})
	}
	return p
}

// parsers returns how many workers a verb has whose requests are only read and left to the engine.
// More than processors would take more memory, and not less time.
func (s *Service) parsers() int { return min(s.config.Readers, runtime.GOMAXPROCS(0)) }

// addSlots makes slots that the statistics count.
func (s *Service) addSlots(perTown, total int) *queue.Slots {
	slots := queue.NewSlots(perTown, total)
	s.slots = append(s.slots, slots)
	return slots
}

// reader reads a request, and returns the body of its answer.
type reader func(context.Context, access.Rights, []byte) ([]byte, error)

// reads makes the endpoint of a verb that only reads.
func (s *Service) reads(verb wire.Verb, handle reader) endpoint {
	return s.readsWith(verb, func(ctx context.Context, r *incoming) (*nats.Msg, error) {
		body, err := handle(ctx, r.rights, r.data)
		return &nats.Msg{Data: body}, err
	})
}

// readsWith is reads for a verb whose requests or answers have headers of their own. A bound of
// requests may wait about one town, run or key, or about none, and twice as many altogether.
func (s *Service) readsWith(
	verb wire.Verb, handle func(context.Context, *incoming) (*nats.Msg, error),
) endpoint {
	spec, waiting := verb.Spec(), s.config.Waiting
	if spec.Lists {
		waiting = min(waiting, waitingLists)
	}
	about := member(strconv.Quote(string(cmp.Or(spec.About, wire.AboutTown))))
	p := s.addPool(s.addSlots(waiting, 2*waiting), s.config.Readers)
	return endpoint{verb: verb, handle: func(r *incoming) {
		reply, data := r.reply, r.data
		if len(data) > maxRequest {
			s.failOnArrival(reply, tooLarge(len(data), maxRequest))
			return
		}
		bytes := requestBytes + readWeight*int64(len(data))
		held := s.admitBelow(s.held.forSmall(), r, p.slots, peekID(about, data), bytes)
		s.enqueue(p, held, reply, func() error {
			msg, err := handle(s.ctx, r)
			if err == nil {
				held.release()
				s.observe(reply, "")
				s.respond(reply, msg)
			}
			return err
		})
	}}
}

// enqueue leaves the work of a request with a slot to a pool; held is nil for a request that was
// refused. An error of work, or a panic, is answered, and the slot released.
func (s *Service) enqueue(p *pool, held *slot, reply replyTo, work func() error) {
	if held == nil {
		return
	}
	p.work <- func() {
		if err := s.safely(work); err != nil {
			s.failHeld(held, reply, err)
		}
	}
}

// finish answers a request that has a slot with what answer returns, and releases the slot. An
// error, or a panic, is answered too.
func (s *Service) finish(held *slot, reply replyTo, answer func() (*nats.Msg, error)) {
	var msg *nats.Msg
	err := s.safely(func() (err error) {
		msg, err = answer()
		return err
	})
	if err != nil {
		s.failHeld(held, reply, err)
		return
	}
	held.release()
	s.observe(reply, "")
	s.respond(reply, msg)
}

// failHeld answers a request that has a slot with err, and releases the slot.
func (s *Service) failHeld(held *slot, reply replyTo, err error) {
	load := held.of.Load(held.town)
	held.release()
	if errors.Is(err, worldengine.ErrOverloaded) {
		s.refuse(s.respond, reply, queueFull, pauseFor(load))
		return
	}
	s.fail(reply, err)
}
