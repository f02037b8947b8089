package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/wire"
)

// incoming is a request from its arrival to its answer.
type incoming struct {
	entrance *Entrance
	inbox    string    // empty if the client waits for no answer
	endpoint *endpoint // of its verb; nil for discovery
	start    time.Time // of its arrival
	data     []byte
	header   nats.Header
	rights   access.Rights
	// refused is the error if the sender may not give the signal. The signal's handler records it.
	refused error
	// A request that was admitted has a slot and bytes, until release.
	slots    *slots
	town     string
	bytes    int64
	released atomic.Bool
}

// handle takes the request in a message. It drops the request if its reply subject is no inbox, if
// the service has stopped, or if another server answers.
func (s *Service) handle(entrance *Entrance, e *endpoint, msg *nats.Msg, crossed bool) {
	s.taking.RLock()
	defer s.taking.RUnlock()
	if s.stopped || s.config.Serves != nil && !s.config.Serves() {
		return
	}
	in := &incoming{
		entrance: entrance, inbox: msg.Reply, endpoint: e, start: time.Now(),
		data: msg.Data, header: msg.Header,
	}
	if s.mayAnswer(msg.Reply) {
		if err := s.take(e, in, headersOf(msg), crossed); err != nil {
			s.fail(in, err)
		}
	}
}

// take admits a request to an endpoint, or returns the error for the client. crossed says that the
// request came from the clients' account.
func (s *Service) take(e *endpoint, in *incoming, headers access.Headers, crossed bool) error {
	certain := headers.Readable()
	in.rights = s.config.Access.OfWorld(headers, in.inbox)
	if crossed {
		in.rights, certain = s.config.Access.OfClient(headers)
	}
	if !certain {
		return errHeadersUnreadable
	}
	err := in.rights.World(s.config.World)
	if err != nil {
		return err
	}
	err = in.rights.Verb(e.Verb)
	if e.Signal {
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
	if reply == "" || wire.IsInbox(reply) {
		return true
	}
	s.config.Logger.Warn("a request was dropped: its reply subject is no inbox; "+
		"the client has to use one that starts with _INBOX", "reply", reply,
		"soFar", s.stray.Add(1))
	return false
}

// route returns the endpoint that works on a request: e, or s.dryRuns for the dry run of a handoff.
// It refuses the dry run of any other verb that changes something, also of alert.ack, which clients
// may repeat.
func (s *Service) route(e *endpoint, header nats.Header) (*endpoint, error) {
	if e.reads && !e.Changes && e.Verb != wire.AlertAck {
		return e, nil
	}
	switch dry, err := isDryRun(header); {
	case err != nil || !dry:
		return e, err
	case e.Verb == wire.Handoff:
		return s.dryRuns, nil
	}
	return nil, refused(schemas.CodeSchemaValidation,
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
			return false, refused(schemas.CodeSchemaValidation,
				"the header %s must be true or false", wire.DryRunHeader)
		}
	}
	return false, nil
}

// Entrance is a NATS account in which a service takes requests and answers them.
type Entrance struct {
	// Requests is the connection that requests arrive on. It is the service's own: Stop closes it.
	Requests *nats.Conn
	// Replies is the connection that answers go out on. It stays open.
	Replies *nats.Conn
	// Intake makes Requests wait while the service is behind. Intake.Wrap must have wrapped the
	// network connection of Requests.
	Intake *Intake
}

// open subscribes to the endpoints and to discovery in the account of an entrance.
func (s *Service) open(in *Entrance) error {
	var all []*nats.Subscription
	for _, e := range s.endpoints {
		subject := wire.Subject(s.config.World, e.Verb)
		for _, on := range s.arrivals(subject) {
			sub, err := in.Requests.QueueSubscribe(on, s.config.QueueGroup, func(msg *nats.Msg) {
				s.handle(in, e, msg, on != subject)
			})
			if err == nil {
				err = sub.SetPendingLimits(-1, -1) // no limit: the intake waits, and loses no request
			}
			if err != nil {
				return fmt.Errorf("service: endpoint %s: %w", on, err)
			}
			all = append(all, sub)
		}
	}
	in.Intake.subscriptions.Store(&all)
	if err := s.discoverable(in); err != nil {
		return err
	}
	// NATS must know the subscriptions before the caller reports that the world is served.
	if err := in.Requests.Flush(); err != nil {
		return fmt.Errorf("service: the endpoints cannot be announced: %w", err)
	}
	return nil
}

// arrivals returns the subjects on which requests to a subject arrive: NATS brings requests of the
// clients' account on another subject.
func (s *Service) arrivals(subject string) []string {
	if s.config.Access == nil {
		return []string{subject}
	}
	return []string{subject, wire.CrossedSubject(subject)}
}

// close stops taking requests. It returns when all requests that had arrived are handled.
func (in *Entrance) close(ctx context.Context) error {
	closed := make(chan struct{})
	in.Requests.SetClosedHandler(func(*nats.Conn) { close(closed) })
	switch err := in.Requests.Drain(); {
	case errors.Is(err, nats.ErrConnectionClosed):
		return nil
	case err != nil:
		return fmt.Errorf("service: %w", err)
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		in.Requests.Close()
		return fmt.Errorf("service: requests are still arriving: %w", ctx.Err())
	}
}

// respond sends an answer, unless the client waits for none. If the request was not admitted, the
// refusal goes out on the connection that the request came on. So a flood of refusals does not
// delay commits and other answers. The inbox was checked on arrival (mayAnswer). Instead of an answer
// that is too large for NATS, the client gets an error.
func (s *Service) respond(in *incoming, msg *nats.Msg) {
	if in.inbox == "" {
		return
	}
	nc := in.entrance.Replies
	if in.slots == nil {
		nc = in.entrance.Requests
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
		s.config.Logger.Warn("an answer could not be sent", "reply", in.inbox, "error", err)
	}
}

const (
	// intakeBytes bounds the bytes that were read from the connection of requests and are not
	// handled yet. One more read may add some 32 KB. The largest message that NATS takes is smaller
	// than intakeBytes.
	intakeBytes = 16 << 20
	intakePause = 500 * time.Microsecond // between two checks of the waiting bytes
)

// Intake makes the connection of requests wait for the service. Without an Intake, nats.go drops
// requests that arrive faster than the service handles them, and their clients get no answer. With
// an Intake, NATS keeps such requests. If a client sends more than NATS keeps for a connection,
// NATS answers "no responders". An Intake is for one connection, and its methods are safe for
// concurrent use.
type Intake struct {
	subscriptions atomic.Pointer[[]*nats.Subscription]
}

// Wrap returns a connection that reads from conn only while the intake has room.
func (i *Intake) Wrap(conn net.Conn) net.Conn { return &throttled{Conn: conn, intake: i} }

// full reports whether intakeBytes or more wait.
func (i *Intake) full() bool {
	all := i.subscriptions.Load()
	if all == nil {
		return false
	}
	waiting := 0
	for _, sub := range *all {
		_, bytes, err := sub.Pending()
		if err == nil { // an error means that it is closed
			waiting += bytes
		}
	}
	return waiting >= intakeBytes
}

// throttled is a connection that is read from only while its intake has room.
type throttled struct {
	net.Conn
	intake *Intake
	closed atomic.Bool
}

// Read implements net.Conn.
func (t *throttled) Read(p []byte) (int, error) {
	for t.intake.full() && !t.closed.Load() {
		time.Sleep(intakePause)
	}
	return t.Conn.Read(p)
}

// Close implements net.Conn.
func (t *throttled) Close() error {
	t.closed.Store(true)
	return t.Conn.Close()
}
