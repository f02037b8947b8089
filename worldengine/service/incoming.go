package service

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/access"
	"worldengine/worldengine/wire"
)

// queueGroup is the queue group of every verb: the default one of NATS micro services.
const queueGroup = "q"

// errHeadersUnreadable is the answer to a header block from which nothing is certain.
var errHeadersUnreadable = errors.New("service: the headers of the request cannot be read, " +
	"so it was not looked at: " +
	`send "NATS/1.0", at most 31 lines "Name: value" and an empty line, each ended by CR LF`)

// incoming is a request that may be worked on.
type incoming struct {
	reply  replyTo
	data   []byte
	header nats.Header
	rights access.Rights
	// refused is why a signal is not taken: its handler records that.
	refused error
}

// handle takes a request, and leaves it to the handler of its verb.
func (s *Service) handle(in *Entrance, e *endpoint, msg *nats.Msg, crossed bool) {
	start := time.Now()
	if r := s.take(in, e.verb, msg, crossed, start); r != nil {
		e.handle(r)
	}
	e.stats.count(time.Since(start))
}

// take returns the request in a message, or nil where it is refused: it is dropped where its reply
// subject is no inbox, and otherwise answered.
func (s *Service) take(
	in *Entrance, verb wire.Verb, msg *nats.Msg, crossed bool, start time.Time,
) *incoming {
	reply := replyTo{in, msg.Reply, verb, start}
	if !s.mayAnswer(msg.Reply) {
		return nil
	}
	headers := headersOf(msg)
	rights, certain := s.config.Access.OfWorld(headers), headers.Readable()
	if crossed {
		rights, certain = s.config.Access.OfClient(headers)
	}
	err, refused := rights.Verb(verb), error(nil)
	if verb.Spec().Signal {
		err, refused = nil, err
	}
	if err == nil {
		err = mayDryRun(verb, msg.Header)
	}
	if !certain {
		err = errHeadersUnreadable
	}
	if err != nil {
		s.failOnArrival(reply, err)
		return nil
	}
	return &incoming{reply, msg.Data, msg.Header, rights, refused}
}

// headersOf returns the headers of a message that was received. Its size is that on the wire,
// whether its headers could be decoded or not.
func headersOf(msg *nats.Msg) access.Headers {
	return access.Headers{
		Decoded: msg.Header, Bytes: msg.Size() - len(msg.Subject) - len(msg.Reply) - len(msg.Data),
	}
}

// mayAnswer reports whether a request with this reply subject may be worked on. Otherwise it counts
// and logs it.
func (s *Service) mayAnswer(reply string) bool {
	if reply == "" || wire.IsInbox(reply) {
		return true
	}
	s.config.Logger.Warn("a request was dropped: its reply subject is no inbox; "+
		"the client has to use one that starts with _INBOX", "reply", reply,
		"soFar", s.stray.Add(1))
	return false
}
