package service

import (
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// reason is why a request was answered with 429.
type reason int

const (
	none      reason = iota
	townFull         // its town has as many slots as it may
	allFull          // no slot is free
	noBytes          // the requests that are held take too much memory
	queueFull        // the engine's queue refused it, after it was read
	reasons
)

// reasonOf returns the reason for which no slot was given.
func reasonOf(refusal queue.Refusal) reason {
	return [...]reason{
		queue.Granted: none, queue.TownFull: townFull, queue.AllFull: allFull,
	}[refusal]
}

// reasonNames are what operators read, in the order of the constants.
var reasonNames = [reasons]string{"", "town", "world", "bytes", "queue"}

// retryBytes is the shortest pause in milliseconds where memory is what is short.
const retryBytes = 250

// Overload is how full the service is, and what it has refused.
type Overload struct {
	// Held is how many requests are between their arrival and their answer, and HeldBytes what they
	// count for of Config.MaxHeld.
	Held      int   `json:"held"`
	HeldBytes int64 `json:"heldBytes"`
	// Refused counts the answers 429 by what was full: "town" and "world" the slots of a town (a
	// run, a key) and of all, "bytes" Config.MaxHeld, "queue" the engine's queue for the town.
	Refused map[string]int64 `json:"refused"`
	// StrayReplies counts the requests that were dropped because their reply subject is no inbox.
	StrayReplies int64 `json:"strayReplies"`
}

// refused counts what was refused, by reason.
type refused [reasons]atomic.Int64

// Overload returns how full the service is, and what it has refused.
func (s *Service) Overload() Overload {
	o := Overload{
		HeldBytes: s.held.held.Load(), Refused: map[string]int64{},
		StrayReplies: s.stray.Load(),
	}
	for _, slots := range s.slots {
		o.Held += slots.Taken()
	}
	for why := none + 1; why < reasons; why++ {
		o.Refused[reasonNames[why]] = s.refused[why].Load()
	}
	return o
}

// admit takes a slot for a request that counts for so many bytes. Where there is none it answers
// with 429 and returns nil. It is called where requests arrive, one at a time for each verb, so it
// reads no more of a request than peekID does.
func (s *Service) admit(r *incoming, slots *queue.Slots, town []byte, bytes int64) *slot {
	return s.admitBelow(s.held.bound, r, slots, town, bytes)
}

// admitBelow is admit with a bound of its own for the bytes of all requests.
func (s *Service) admitBelow(
	bound int64, r *incoming, slots *queue.Slots, town []byte, bytes int64,
) *slot {
	bytes = min(bytes, s.held.bound) // each request may be held alone
	name, load, refusal := slots.TakeBytes(town)
	if refusal != queue.Granted {
		s.refuse(s.respondOnArrival, r.reply, reasonOf(refusal), pauseFor(load))
		return nil
	}
	if !s.held.take(bytes, bound) {
		slots.Release(name)
		s.refuse(s.respondOnArrival, r.reply, noBytes, max(pauseFor(load), retryBytes))
		return nil
	}
	return &slot{of: slots, held: &s.held, town: name, bytes: bytes}
}

// refuse counts a refusal, and answers with 429.
func (s *Service) refuse(
	respond func(replyTo, *nats.Msg), to replyTo, why reason, pause int,
) {
	s.refused[why].Add(1)
	s.observe(to, wire.CodeOverloaded)
	respond(to, &nats.Msg{Data: overloaded.Data, Header: overloadedHeaders[pause/pauseStep]})
}

// overloaded is the answer to a request that does not fit, made once, and overloadedHeaders its
// headers for each pause. They must not be changed.
var overloaded, overloadedHeaders = makeOverloaded()

func makeOverloaded() (*nats.Msg, [longestPause/pauseStep + 1]nats.Header) {
	msg, err := errorReply(worldengine.ErrOverloaded)
	if err != nil {
		panic(fmt.Sprintf("service: the answer to overload: %v", err))
	}
	var headers [longestPause/pauseStep + 1]nats.Header
	for i := range headers {
		headers[i] = maps.Clone(msg.Header)
		headers[i][wire.RetryAfterHeader] = []string{strconv.Itoa(i * pauseStep)}
	}
	return msg, headers
}
