package service

import (
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/worldengine"
)

// reason is why a request was answered with 429.
type reason int

const (
	none           reason = iota
	noPlaceForTown        // its town has as many as it may have
	noPlace               // no place is free
	noBytes               // the requests that are held take too much memory
	fullQueue             // the engine's queue refused it, after it was read
	reasons
)

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
	// Refused counts the answers 429 by what was full: "town" and "world" the places of a town (a run, a
	// key) and of all, "bytes" Config.MaxHeld, "queue" the engine's queue for the town.
	Refused map[string]int64 `json:"refused"`
}

// refused counts what was refused, by reason.
type refused [reasons]atomic.Int64

func (s *Service) overload() Overload {
	o := Overload{HeldBytes: s.held.held.Load(), Refused: map[string]int64{}}
	for _, p := range s.places {
		o.Held += p.count()
	}
	for why := none + 1; why < reasons; why++ {
		o.Refused[reasonNames[why]] = s.refused[why].Load()
	}
	return o
}

// admit takes a place for a request that counts for so many bytes, and answers it with 429 where there is
// none: nil is returned then. It is called where requests arrive, one at a time for each verb, so it
// reads nothing of the request but what guess does.
func (s *Service) admit(r micro.Request, in *places, town []byte, bytes int64) *place {
	bytes = min(bytes, s.held.bound) // each request may be held alone
	name, why, pause := in.take(town)
	if why != none {
		s.refuse(s.requests, r.Reply(), why, pause)
		return nil
	}
	if !s.held.take(bytes) {
		pause := max(in.pause(name), retryBytes)
		in.giveBack(name)
		s.refuse(s.requests, r.Reply(), noBytes, pause)
		return nil
	}
	return &place{in: in, held: &s.held, town: name, bytes: bytes}
}

// refuse answers with 429, on a connection: refusals of what arrives go back on the connection that it
// came on, so that a flood of them does not stand in the way of commits and answers.
func (s *Service) refuse(nc *nats.Conn, reply string, why reason, pause int) {
	s.refused[why].Add(1)
	s.respondOn(nc, &nats.Msg{Subject: reply, Data: overloaded.Data, Header: overloadedHeaders[pause/pauseStep]})
}

// overloaded is the answer to what does not fit, made once, and overloadedHeaders its headers for each
// pause. Nobody changes them.
var overloaded, overloadedHeaders = makeOverloaded()

func makeOverloaded() (*nats.Msg, [longestPause/pauseStep + 1]nats.Header) {
	msg, err := errorReply(worldengine.ErrOverloaded)
	if err != nil {
		panic(fmt.Sprintf("service: the answer to overload: %v", err))
	}
	var headers [longestPause/pauseStep + 1]nats.Header
	for i := range headers {
		headers[i] = maps.Clone(msg.Header)
		headers[i][worldengine.RetryAfterHeader] = []string{strconv.Itoa(i * pauseStep)}
	}
	return msg, headers
}
