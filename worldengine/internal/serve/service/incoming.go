package service

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/wire"
)

// incoming is a request from its arrival to its answer. Who calls whom:
//
//	receive > route, admit    as it arrives: the rights of its sender; then its slot, its bytes, a lane of its endpoint
//	work > answer > handle    a worker of the lane; handle, a field of the endpoint, carries the request out
//	answer > reply > send     the worker, with what handle returns; or the engine, if that is nil (engineReply)
//	fail > send               each of them, with an error
type incoming struct {
	addressee *addressee
	listener  *Listener
	inbox     string    // empty if the client waits for no answer
	endpoint  *endpoint // of its verb; nil for discovery
	start     time.Time // of its arrival
	data      []byte
	header    nats.Header
	rights    access.Rights
	// signalRefusal is the error if the sender may not give the signal. The signal's handler records it.
	signalRefusal error
	// A request that was admitted has a slot and bytes, until release.
	slots     *slots
	slotOwner slotOwner
	bytes     int64
	released  atomic.Bool
}

// receive routes and admits a request. It drops the request if its reply subject is no inbox, if the addressee is
// closing, or if another server answers. crossed says that the request came from the clients' account.
func (a *addressee) receive(listener *Listener, e *endpoint, msg *nats.Msg, crossed bool) {
	a.accepting.RLock()
	defer a.accepting.RUnlock()
	if a.stopped || a.world != nil && !a.world.config.HasLease() {
		return
	}
	in := &incoming{
		addressee: a, listener: listener, inbox: msg.Reply, endpoint: e, start: time.Now(),
		data: msg.Data, header: msg.Header,
	}
	if !a.service.mayAnswer(msg.Reply) {
		return
	}
	e, err := a.route(e, in, headersOf(msg), crossed)
	if err != nil {
		a.fail(in, err)
		return
	}
	a.admit(e, in)
}

// route checks the rights of a request's sender, and returns the endpoint that works on the request, or the
// error for the client.
func (a *addressee) route(
	e *endpoint, in *incoming, headers access.Headers, crossed bool,
) (*endpoint, error) {
	certain, users := headers.Readable(), a.service.config.Access
	in.rights = users.WorldRights(headers, in.inbox)
	if crossed {
		in.rights, certain = users.ClientRights(headers)
	}
	if !certain {
		return nil, errHeadersUnreadable
	}
	if err := in.rights.World(a.token); err != nil && !e.Verb.ManagesWorlds() {
		return nil, err
	}
	err := in.rights.CheckVerb(e.Verb)
	if e.Signal {
		in.signalRefusal, err = err, nil
	}
	if err != nil {
		return nil, err
	}
	if e, err = a.service.selectEndpoint(e, in.header); err != nil {
		return nil, err
	}
	if len(in.data) > e.limit {
		return nil, invalidRequest(schemas.CodePayloadTooLarge, "has %d bytes, at most %d are read",
			len(in.data), e.limit)
	}
	return e, nil
}

// headersOf returns the headers of a received message, and their size on the wire. It returns the
// size even if the headers could not be decoded.
func headersOf(msg *nats.Msg) access.Headers {
	return access.Headers{
		Decoded: msg.Header, Bytes: msg.Size() - len(msg.Subject) - len(msg.Reply) - len(msg.Data),
	}
}

// mayAnswer reports whether an answer may go to a reply subject. If it may not, mayAnswer counts
// and logs the request.
func (s *Service) mayAnswer(reply string) bool {
	if reply == "" || layout.IsInbox(reply) {
		return true
	}
	s.config.Logger.Warn("a request was dropped: its reply subject is no inbox; "+
		"the client has to use one that starts with _INBOX", "reply", reply,
		"soFar", s.strayReplies.Add(1))
	return false
}

// selectEndpoint returns the endpoint that works on a request: e, or s.dryRuns for the dry run of a handoff.
// It refuses the dry run of any other verb that changes something, also of alert.ack, which clients
// may repeat.
func (s *Service) selectEndpoint(e *endpoint, header nats.Header) (*endpoint, error) {
	if !e.queued && !e.NonIdempotent && e.Verb != wire.AlertAck {
		return e, nil
	}
	switch dry, err := isDryRun(header); {
	case err != nil || !dry:
		return e, err
	case e.Verb == wire.Handoff:
		return s.dryRuns, nil
	}
	return nil, invalidRequest(schemas.CodeSchemaValidation,
		"the header %s is for %s alone, not for %s", wire.DryRunHeader, wire.Handoff, e.Verb)
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
			return false, invalidRequest(schemas.CodeSchemaValidation,
				"the header %s must be true or false", wire.DryRunHeader)
		}
	}
	return false, nil
}

// send sends an answer, unless the client waits for none. If the request was not admitted, the
// refusal goes out on the connection that the request came on. So a flood of refusals does not
// delay commits and other answers. The inbox was checked on arrival (mayAnswer). Instead of an answer
// that is too large for NATS, the client gets an error.
func (a *addressee) send(in *incoming, msg *nats.Msg) {
	if in.inbox == "" {
		return
	}
	nc := in.listener.Replies
	if in.slots == nil {
		nc = in.listener.Requests
	}
	msg.Subject = in.inbox
	err := nc.PublishMsg(msg)
	if errors.Is(err, nats.ErrMaxPayload) {
		err = fmt.Errorf("%w: %d bytes, at most %d", errAnswerTooLarge, msg.Size(), nc.MaxPayload())
		refusal := failureOf(err).reply()
		refusal.Subject = in.inbox
		_ = nc.PublishMsg(refusal)
	}
	if err != nil {
		a.logger.Warn("an answer could not be sent", "reply", in.inbox, "error", err)
	}
}
