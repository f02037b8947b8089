package service

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// endpoint is a verb: the bounds of its requests, and the workers for them.
type endpoint struct {
	*protocol.VerbSpec
	// handle carries out a request and returns its reply: a *nats.Msg to send as it is, or a value to
	// send as JSON. It returns nil if the reply comes later, such as from the engine. If handle returns
	// an error, the client gets the error.
	handle  handler
	lanes   []*lane // to the workers
	slots   *slots
	slotKey member // the member by which requests share the slots
	// queued is set if requests wait in the queue of their town. A dry run of a handoff counts as queued,
	// so that it has no more room than the handoff.
	queued bool
	limit  int // of a request, in bytes
	// weight is the number of bytes of Config.MaxHeld that each byte of a request uses, since the
	// text and its parsed tree take memory.
	weight int64
	number int // among the endpoints of the service
}

// handler carries out requests.
type handler func(*incoming) (any, error)

// Weights of endpoints. A patch is kept as a tree, which needs some thirty times the memory of its
// text at worst.
const (
	handoffWeight = 3
	changeWeight  = 4
	patchWeight   = 30
	directWeight  = 2
)

// waitingLists bounds Config.MaxWaitingReads for the verbs that read a whole world. Their requests that
// name no town share the bound.
const waitingLists = 128

// makeEndpoints makes the endpoint of every verb, with its workers. Each file lists the endpoints
// of its verbs. Dry runs of handoffs have another endpoint than handoffs, with slots of their own,
// since dry runs bypass the queues of towns.
func (s *Service) makeEndpoints() {
	waiting := s.config.MaxWaitingReads
	s.dryRuns = s.startEndpoint(&endpoint{
		VerbSpec: protocol.LookupVerb(wire.Handoff), handle: worldHandler((*ServedWorld).dryRun), slots: s.slots(waiting, 2*waiting),
		slotKey: townMember, queued: true, limit: maxHandoff, weight: handoffWeight,
	}, 1, s.config.ReadWorkers)
	s.endpoints = slices.Concat(s.townEndpoints(), s.runEndpoints(), s.signalEndpoints(),
		s.worldEndpoints(), s.worldsEndpoints(), []*endpoint{
			s.queuedEndpoint(wire.Handoff, worldHandler((*ServedWorld).handoff), maxHandoff, handoffWeight),
		})
	for i, e := range s.endpoints {
		e.number = i
	}
	s.dryRuns.number = len(s.endpoints)
}

func (s *Service) slots(perTown, total int) *slots { return newSlots(perTown, total, &s.openWorlds) }

// direct is directEndpoint for a handler with a parsed request. Q is the type of the request, which
// has a schema, and A the type of the reply.
func direct[Q, A any](
	s *Service, verb wire.Verb, answer func(*ServedWorld, *incoming, *Q) (A, error),
) *endpoint {
	return s.directEndpoint(verb, worldHandler(parsed(answer)))
}

// worldHandler makes the handler of a verb about a world.
func worldHandler(handle func(*ServedWorld, *incoming) (any, error)) handler {
	return func(in *incoming) (any, error) { return handle(in.addressee.world, in) }
}

// parsed returns a function that calls answer with the parsed request.
func parsed[R, Q, A any](answer func(R, *incoming, *Q) (A, error)) func(R, *incoming) (any, error) {
	return func(receiver R, in *incoming) (any, error) {
		var request Q
		if err := parse(in.endpoint.Verb, in.data, &request); err != nil {
			return nil, err
		}
		return answer(receiver, in, &request)
	}
}

// signalEndpoint makes the endpoint of a verb that gives a signal. signal converts the request Q to the
// signal, and carryOut gives the signal to the engine. A refused signal is recorded, with the
// readable part of its request.
func signalEndpoint[Q, A any](
	s *Service, verb wire.Verb, signal func(*Q) engine.Signal,
	carryOut func(*ServedWorld, *Q, engine.Signal) (A, error),
) *endpoint {
	return s.directEndpoint(verb, worldHandler(func(w *ServedWorld, in *incoming) (any, error) {
		var request Q
		err := parse(verb, in.data, &request)
		if err != nil {
			parsePartial(in.data, &request)
		}
		given := signal(&request)
		given.ActorID = cmp.Or(in.rights.Sender(), given.ActorID)
		err = cmp.Or(in.signalRefusal, err, in.rights.CheckTown(given.TownID), in.rights.CheckRead(given.TownID))
		if err != nil {
			w.recordRefused(given, err)
			return nil, err
		}
		return carryOut(w, &request, given)
	}))
}

// directEndpoint makes the endpoint of a verb whose requests enter no queue of a town.
// At most Config.MaxWaitingReads requests may wait about one town, run or key, and as many about none. At
// most twice as many may wait in all.
func (s *Service) directEndpoint(verb wire.Verb, do handler) *endpoint {
	spec, waiting, workers := protocol.LookupVerb(verb), s.config.MaxWaitingReads, s.config.ReadWorkers
	if spec.Lists {
		waiting = min(waiting, waitingLists)
	}
	if verb.ManagesWorlds() {
		workers = min(workers, worldsWorkers)
	}
	about := strconv.Quote(string(cmp.Or(spec.SlotKey, protocol.SlotTown)))
	return s.startEndpoint(&endpoint{
		VerbSpec: spec, handle: do, slots: s.slots(waiting, 2*waiting),
		slotKey: member(about), limit: maxRequest, weight: directWeight,
	}, 1, workers)
}

// maxLanes bounds the lanes of a verb whose requests wait in the engine. This many workers parse
// more handoffs than the engine can judge.
const maxLanes = 4

// queuedEndpoint makes the endpoint of a verb whose requests wait in the engine for their town. The
// requests of one town are in one lane, which has one worker, so they are submitted in the order
// of their arrival.
func (s *Service) queuedEndpoint(verb wire.Verb, do handler, limit int, weight int64) *endpoint {
	return s.startEndpoint(&endpoint{
		VerbSpec: protocol.LookupVerb(verb), handle: do, slots: s.queuedSlots, slotKey: townMember, queued: true,
		limit: limit, weight: weight,
	}, min(maxLanes, runtime.GOMAXPROCS(0)), 1)
}

// startEndpoint makes the lanes of an endpoint, and starts the workers of each.
func (s *Service) startEndpoint(e *endpoint, lanes, workers int) *endpoint {
	for range lanes {
		l := newLane()
		e.lanes = append(e.lanes, l)
		for range workers {
			s.workers.Go(func() {
				for in := l.next(); in != nil; in = l.next() {
					in.addressee.work(e, in)
				}
			})
		}
	}
	return e
}

func (a *addressee) work(e *endpoint, in *incoming) {
	defer a.unanswered.Done()
	a.answer(in, func() (any, error) { return e.handle(in) })
	in.data, in.header = nil, nil // frees their memory
}

var laneSeed = maphash.MakeSeed()

// lane returns the lane of the requests about a town.
func (e *endpoint) lane(owner slotOwner) *lane {
	if len(e.lanes) == 1 {
		return e.lanes[0]
	}
	return e.lanes[maphash.Comparable(laneSeed, owner)%uint64(len(e.lanes))]
}

// parse reads a payload into the request of a verb. An empty payload counts as "{}".
func parse(verb wire.Verb, data []byte, request any) error {
	if len(data) == 0 { // as `nats request` sends it
		data = []byte("{}")
	}
	return handoff.Read(schemas.RequestOf(string(verb)), data,
		schemas.Limits{Bytes: maxRequest}, request)
}

// answer replies to a request with the value or the error that work returns. If both are nil, the
// reply is sent elsewhere. A panic of work is logged, and the client gets INTERNAL.
func (a *addressee) answer(in *incoming, work func() (any, error)) {
	defer func() {
		if p := recover(); p != nil {
			a.logger.Error("a request panicked", "panic", p, "stack", string(debug.Stack()))
			a.fail(in, errPanicked)
		}
	}()
	v, err := work()
	if v != nil && err == nil {
		err = a.reply(in, v)
	}
	if err != nil {
		a.fail(in, err)
	}
}

// reply answers a request with v: a *nats.Msg as it is, any other value as JSON.
func (a *addressee) reply(in *incoming, v any) error {
	msg, ok := v.(*nats.Msg)
	if !ok {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("service: an answer cannot be written: %w", err)
		}
		msg = &nats.Msg{Data: data}
	}
	a.release(in)
	a.countAnswer(in, "")
	a.send(in, msg)
	return nil
}

// engineReply is the engine's client for a request. reply converts the engine's T to the answer; it is
// nil if T is the answer.
type engineReply[T any] struct {
	*ServedWorld
	request *incoming
	reply   func(T) (any, error)
}

// Answer implements queue.Answerer.
func (c engineReply[T]) Answer(value T, err error) {
	c.answer(c.request, func() (any, error) {
		if err != nil || c.reply == nil {
			return value, err
		}
		return c.reply(value)
	})
}
