package service

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// endpoint is a verb: the bounds of its requests, and the workers for them.
type endpoint struct {
	*wire.VerbSpec
	// do answers a request, or submits it to the engine. The client gets its error.
	do func(*incoming) error
	// work has room for every request with a slot, so a send never blocks.
	work  chan *incoming
	slots *queue.Slots
	about member // by which requests share the slots
	reads bool   // it only reads, or gives a signal
	limit int    // of a request, in bytes
	// weight is how many bytes of memory a byte of a request counts for: its text and its tree.
	weight int64
	line   *line // keeps the order of arrival; nil if that does not matter

	mu    sync.Mutex // guards stats
	stats micro.EndpointStats
}

// Weights of endpoints. A patch is kept as a tree, which takes some thirty times the memory of its
// text at worst.
const (
	handoffWeight = 3
	changeWeight  = 4
	patchWeight   = 30
	readWeight    = 2
)

// waitingLists is used instead of Config.Waiting for the verbs that read through a world. Most of
// their requests name no town, so it bounds a burst of them.
const waitingLists = 128

// makeEndpoints returns the endpoint of every verb, with its workers. Each file of verbs has a list.
func (s *Service) makeEndpoints() []*endpoint {
	handoffs := s.submits(wire.Handoff, s.handoff, s.config.MaxHandoff, handoffWeight)
	handoffs.line = &s.line
	return slices.Concat(s.townEndpoints(), s.runEndpoints(), s.signalEndpoints(),
		s.worldEndpoints(), []*endpoint{handoffs})
}

// reads makes the endpoint of a verb with a request Q, which has a schema, and the reply that answer
// returns: JSON, or a *nats.Msg as it is.
func reads[Q, A any](
	s *Service, verb wire.Verb, answer func(*incoming, *Q) (A, error),
) *endpoint {
	return s.readsBy(verb, func(in *incoming) error {
		var request Q
		if err := parse(verb, in.data, &request); err != nil {
			return err
		}
		reply, err := answer(in, &request)
		if err != nil {
			return err
		}
		return s.reply(in, reply)
	})
}

// signals makes the endpoint of a verb that gives a signal. signal converts the request Q to it. A
// refused signal is recorded, with the readable part of its request.
func signals[Q, A any](
	s *Service, verb wire.Verb, signal func(*Q) worldengine.Signal,
	carryOut func(*Q, worldengine.Signal) (A, error),
) *endpoint {
	return s.readsBy(verb, func(in *incoming) error {
		var request Q
		err := parse(verb, in.data, &request)
		if err != nil {
			salvage(in.data, &request)
		}
		given := signal(&request)
		given.ActorID = cmp.Or(in.rights.Sender(), given.ActorID)
		err = cmp.Or(in.refused, err, in.rights.Town(given.TownID), in.rights.Read(given.TownID))
		if err != nil {
			s.recordRefused(given, err)
			return err
		}
		reply, err := carryOut(&request, given)
		if err != nil {
			return err
		}
		return s.reply(in, reply)
	})
}

// readsBy makes the endpoint of a verb that only reads, or gives a signal. Config.Waiting requests
// may wait about one town, run or key, or about none, and twice as many in all.
func (s *Service) readsBy(verb wire.Verb, do func(*incoming) error) *endpoint {
	spec, waiting := verb.Spec(), s.config.Waiting
	if spec.Lists {
		waiting = min(waiting, waitingLists)
	}
	about := strconv.Quote(string(cmp.Or(spec.About, wire.AboutTown)))
	return s.start(&endpoint{
		VerbSpec: spec, do: do, slots: queue.NewSlots(waiting, 2*waiting),
		about: member(about), reads: true, limit: maxRequest, weight: readWeight,
	}, s.config.Readers)
}

// submits makes the endpoint of a verb whose requests wait in the engine for their town.
func (s *Service) submits(
	verb wire.Verb, submit func(*incoming) error, limit int, weight int64,
) *endpoint {
	return s.start(&endpoint{
		VerbSpec: verb.Spec(), do: submit, slots: s.changes, about: aboutTown, limit: limit,
		weight: weight,
	}, s.parsers())
}

// makeDryRuns returns the endpoint of dry runs, which bypass the queues of towns.
func (s *Service) makeDryRuns() *endpoint {
	waiting := s.config.Waiting
	return s.start(&endpoint{
		VerbSpec: wire.Handoff.Spec(), do: s.dryRun, slots: queue.NewSlots(waiting, 2*waiting),
		about: aboutTown, limit: s.config.MaxHandoff, weight: handoffWeight,
	}, s.parsers())
}

// parsers is the number of workers of a verb that parses large requests: more than processors would
// take more memory, and not less time.
func (s *Service) parsers() int { return min(s.config.Readers, runtime.GOMAXPROCS(0)) }

// start starts the workers of an endpoint.
func (s *Service) start(e *endpoint, workers int) *endpoint {
	e.work = make(chan *incoming, e.slots.Total())
	for range workers {
		s.workers.Go(func() {
			for in := range e.work {
				if err := s.safely(func() error { return e.do(in) }); err != nil {
					s.fail(in, err)
				}
				in.data, in.header = nil, nil // frees their memory
			}
		})
	}
	return e
}

// parse reads a payload into the request of a verb. An empty payload counts as "{}".
func parse(verb wire.Verb, data []byte, request any) error {
	if len(data) == 0 { // as `nats request` sends it
		data = []byte("{}")
	}
	return handoff.Read(schemas.RequestOf(string(verb)), data,
		schemas.Limits{Bytes: maxRequest}, request)
}

// finish answers a request with err or, if that is nil, replies with the value of answer. If answer
// panics, the client gets INTERNAL.
func (s *Service) finish(in *incoming, err error, answer func() (any, error)) {
	if err == nil {
		err = s.safely(func() error {
			v, err := answer()
			if err != nil {
				return err
			}
			return s.reply(in, v)
		})
	}
	if err != nil {
		s.fail(in, err)
	}
}

// reply answers a request with v: a *nats.Msg as it is, any other value as JSON.
func (s *Service) reply(in *incoming, v any) error {
	msg, ok := v.(*nats.Msg)
	if !ok {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("service: an answer cannot be written: %w", err)
		}
		msg = &nats.Msg{Data: data}
	}
	s.release(in)
	s.observe(in, "")
	s.respond(in, msg)
	return nil
}
