package service

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// incoming is a request from its arrival to its answer.
type incoming struct {
	entrance *Entrance
	inbox    string // empty if the client waits for no answer
	verb     wire.Verb
	start    time.Time // of its arrival
	data     []byte
	header   nats.Header
	rights   access.Rights
	// refused is why a signal is not taken: its handler records that.
	refused error
	// A request that was admitted has a slot and bytes, until release.
	slots    *queue.Slots
	town     string
	bytes    int64
	released atomic.Bool
	stats    *verbStats // of its verb; nil for discovery
	// parsed reports whether a handoff in the line is parsed, and delivery leaves it to the engine;
	// nil if it was refused. The line's lock guards both.
	parsed   bool
	delivery submitter
}

// handle takes the request in a message. It drops a request whose reply subject is no inbox, and
// every request that another server answers.
func (s *Service) handle(entrance *Entrance, e *endpoint, msg *nats.Msg, crossed bool) {
	s.taking.RLock()
	defer s.taking.RUnlock()
	if s.stopped || s.config.Serves != nil && !s.config.Serves() {
		return
	}
	in := &incoming{
		entrance: entrance, inbox: msg.Reply, verb: e.verb, start: time.Now(),
		data: msg.Data, header: msg.Header, stats: e.stats,
	}
	if s.mayAnswer(msg.Reply) {
		if err := s.take(e, in, headersOf(msg), crossed); err != nil {
			s.fail(in, err)
		}
	}
}

// take admits a request to an endpoint. The error is why it may not be worked on.
func (s *Service) take(e *endpoint, in *incoming, headers access.Headers, crossed bool) error {
	certain := headers.Readable()
	in.rights = s.config.Access.OfWorld(headers, in.inbox)
	if crossed {
		in.rights, certain = s.config.Access.OfClient(headers)
	}
	if !certain {
		return errHeadersUnreadable
	}
	err := in.rights.Verb(in.verb)
	if in.verb.Spec().Signal {
		in.refused, err = err, nil
	}
	if err != nil {
		return err
	}
	if e, err = s.route(e, in.header); err != nil {
		return err
	}
	if len(in.data) > e.limit {
		return refused(schemas.CodePayloadTooLarge, "has %d bytes, at most %d are read",
			len(in.data), e.limit)
	}
	s.admit(e, in)
	return nil
}

// headersOf returns the headers of a message that was received, with their size on the wire,
// whether they could be decoded or not.
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

// route returns the endpoint that works on a request: another one for a dry run. It refuses a dry
// run of a verb that has none and would change something.
func (s *Service) route(e *endpoint, header nats.Header) (*endpoint, error) {
	if e.verb != wire.Handoff && e.verb != wire.RunAppend && !e.verb.Spec().Changes {
		return e, nil
	}
	switch dry, err := isDryRun(header); {
	case err != nil || !dry:
		return e, err
	case e.verb == wire.Handoff:
		return s.dryRuns, nil
	}
	return nil, refused(schemas.CodeSchemaValidation,
		"the header %s is for %s alone, not for %s", wire.DryRunHeader, wire.Handoff, e.verb)
}

// isDryRun reports whether a request asks for a dry run. The name of the header may be spelled in
// any case: a client that asks for a dry run must not have the handoff executed.
func isDryRun(header nats.Header) (bool, error) {
	for name, values := range header {
		if !strings.EqualFold(name, wire.DryRunHeader) {
			continue
		}
		switch {
		case len(values) == 1 && strings.EqualFold(values[0], "true"):
			return true, nil
		case len(values) != 1 || !strings.EqualFold(values[0], "false"):
			return false, refused(schemas.CodeSchemaValidation,
				"the header %s must be true or false", wire.DryRunHeader)
		}
	}
	return false, nil
}
