package service

import (
	"cmp"
	"context"
	"runtime"
	"strconv"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// endpoint is a verb: how its requests are admitted, and the workers for them.
type endpoint struct {
	verb wire.Verb
	// do answers a request, or leaves it to the engine. Its error is answered.
	do func(*incoming) error
	// work has room for every request with a slot, so none waits to get in.
	work  chan *incoming
	slots *queue.Slots
	about member // by which requests share the slots
	reads bool   // it only reads, or gives a signal
	limit int    // of a request, in bytes
	// weight is how many bytes of memory a byte of a request is taken to need: its text and what
	// was read of it.
	weight int64
	stats  *verbStats
	line   *line // keeps the order of arrival; nil if that does not matter
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

// makeEndpoints returns the endpoint of every verb, with its workers.
func (s *Service) makeEndpoints() []*endpoint {
	// More than processors would take more memory, and not less time.
	parsers := min(s.config.Readers, runtime.GOMAXPROCS(0))
	size, pause, resume := s.config.MaxSnapshot, lifecycle.SignalPause, lifecycle.SignalResume
	handoffs := s.submits(wire.Handoff, s.handoff, s.config.MaxHandoff, handoffWeight, parsers)
	handoffs.line = &s.line
	return []*endpoint{
		s.reads(wire.TownGet, s.townGet),
		s.reads(wire.TownHistory, s.townHistory),
		s.reads(wire.MemoryGet, s.memoryGet),
		s.reads(wire.TownList, s.townList),
		s.submits(wire.TownPut, s.townPut, size, changeWeight, parsers),
		s.submits(wire.TownPatch, s.townPatch, size, patchWeight, parsers),
		s.submits(wire.TownRemove, s.townRemove, maxRequest, changeWeight, parsers),
		s.reads(wire.ResultGet, s.resultGet),
		s.reads(wire.RunGet, s.runGet),
		s.reads(wire.RunList, s.runList),
		s.reads(wire.RunEvents, s.runEvents),
		s.readsBy(wire.EventList, s.eventList),
		s.submits(wire.RunAppend, s.runAppend, maxAppend, changeWeight, parsers),
		s.signal(wire.RunCancel, lifecycle.SignalCancel, schemas.RunCancelRequest, s.control),
		s.signal(wire.RunRetry, lifecycle.SignalRetry, schemas.RunRetryRequest, s.runRetry),
		s.signal(wire.ControlPause, pause, schemas.ControlSignalRequest, s.control),
		s.signal(wire.ControlResume, resume, schemas.ControlSignalRequest, s.control),
		s.reads(wire.ControlGet, s.controlGet),
		s.reads(wire.AlertList, s.alertList),
		s.reads(wire.AlertAck, s.alertAck),
		s.reads(wire.ApprovalList, s.approvalList),
		s.reads(wire.ApprovalDecide, s.approvalDecide),
		s.reads(wire.WhoAmI, s.whoAmI),
		s.reads(wire.WorldStatus, s.worldStatus),
		s.reads(wire.WorldSamples, s.worldSamples),
		s.reads(wire.WorldClients, s.worldClients),
		handoffs,
	}
}

// reader returns the answer to a request.
type reader func(context.Context, *incoming) (*nats.Msg, error)

// reads makes the endpoint of a verb that only reads, or that gives a signal. A bound of requests
// may wait about one town, run or key, or about none, and twice as many altogether.
func (s *Service) reads(verb wire.Verb, read reader) *endpoint {
	return s.readsBy(verb, s.answering(read))
}

// readsBy is reads for a verb that answers by itself.
func (s *Service) readsBy(verb wire.Verb, do func(*incoming) error) *endpoint {
	spec, waiting := verb.Spec(), s.config.Waiting
	if spec.Lists {
		waiting = min(waiting, waitingLists)
	}
	about := strconv.Quote(string(cmp.Or(spec.About, wire.AboutTown)))
	return s.start(&endpoint{
		verb: verb, do: do, slots: queue.NewSlots(waiting, 2*waiting),
		about: member(about), reads: true, limit: maxRequest, weight: readWeight,
	}, s.config.Readers)
}

// answering makes a reader an endpoint's do.
func (s *Service) answering(read reader) func(*incoming) error {
	return func(in *incoming) error {
		s.finish(in, nil, func() (*nats.Msg, error) { return read(s.ctx, in) })
		return nil
	}
}

// submits makes the endpoint of a verb whose requests wait in the engine for their town.
func (s *Service) submits(
	verb wire.Verb, submit func(*incoming) error, limit int, weight int64, workers int,
) *endpoint {
	return s.start(&endpoint{
		verb: verb, do: submit, slots: s.changes, about: aboutTown, limit: limit, weight: weight,
	}, workers)
}

// makeDryRuns returns the endpoint of handoffs that are only to be judged, beside the queues of
// their towns.
func (s *Service) makeDryRuns() *endpoint {
	waiting := s.config.Waiting
	return s.start(&endpoint{
		verb: wire.Handoff, do: s.answering(s.dryRun), slots: queue.NewSlots(waiting, 2*waiting),
		about: aboutTown, limit: s.config.MaxHandoff, weight: handoffWeight,
	}, min(s.config.Readers, runtime.GOMAXPROCS(0)))
}

// start gives an endpoint its workers.
func (s *Service) start(e *endpoint, workers int) *endpoint {
	e.work = make(chan *incoming, e.slots.Total())
	for range workers {
		s.workers.Go(func() {
			for in := range e.work {
				if err := s.safely(func() error { return e.do(in) }); err != nil {
					s.fail(in, err)
				}
				in.data, in.header = nil, nil // they are not kept longer than they are needed
			}
		})
	}
	return e
}

// finish answers a request with err or, without one, with what answer returns. A panic of answer is
// answered too.
func (s *Service) finish(in *incoming, err error, answer func() (*nats.Msg, error)) {
	var msg *nats.Msg
	if err == nil {
		err = s.safely(func() (err error) {
			msg, err = answer()
			return err
		})
	}
	if err != nil {
		s.fail(in, err)
		return
	}
	s.release(in)
	s.observe(in, "")
	s.respond(in, msg)
}
