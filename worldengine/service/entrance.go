package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/wire"
)

// Entrance is a NATS account in which a service takes requests and answers them.
type Entrance struct {
	// Requests is the connection that requests arrive on. It is the service's own: Stop closes it.
	Requests *nats.Conn
	// Replies is the connection that answers go out on. It stays open.
	Replies *nats.Conn
	// Intake makes Requests wait for the service; nil if it does not wait.
	Intake *Intake
}

// pendingMessages and intakeBytes bound what nats.go keeps for a subscription without an Intake. A
// message beyond them is lost without an answer.
const pendingMessages = 500_000

// open subscribes to the endpoints and to discovery in the account of an entrance.
func (s *Service) open(in *Entrance) error {
	var all []*nats.Subscription
	for _, e := range s.endpoints {
		subs, err := s.subscribe(in, e)
		if err != nil {
			return err
		}
		all = append(all, subs...)
	}
	if in.Intake != nil {
		if err := in.Intake.bound(all); err != nil {
			return fmt.Errorf("service: endpoints: %w", err)
		}
	}
	if err := s.discovery.subscribe(in); err != nil {
		return err
	}
	// NATS must know the subscriptions before the caller reports that the world is served.
	if err := in.Requests.Flush(); err != nil {
		return fmt.Errorf("service: the endpoints cannot be announced: %w", err)
	}
	return nil
}

// subscribe subscribes to a verb: on its public subject and, with access control, on the subject of
// the requests from the clients' account.
func (s *Service) subscribe(in *Entrance, e *endpoint) (subs []*nats.Subscription, err error) {
	subject := wire.Subject(s.config.World, e.verb)
	subjects := []string{subject}
	if s.config.Access != nil {
		subjects = append(subjects, wire.CrossedSubject(subject))
	}
	for _, on := range subjects {
		sub, err := in.Requests.QueueSubscribe(on, s.config.QueueGroup, func(msg *nats.Msg) {
			s.handle(in, e, msg, on != subject)
		})
		if err == nil {
			err = sub.SetPendingLimits(pendingMessages, intakeBytes)
		}
		if err != nil {
			return nil, fmt.Errorf("service: endpoint %s: %w", on, err)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

// close stops taking requests, and returns when all that had arrived were handled.
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

// respond sends an answer, unless the client waits for none. A refusal goes out on the connection
// that the request came on, so that a flood of them does not delay commits and other answers. The
// inbox was checked on arrival (mayAnswer).
func (s *Service) respond(in *incoming, msg *nats.Msg) {
	if in.inbox == "" {
		return
	}
	nc := in.entrance.Replies
	if in.slots == nil {
		nc = in.entrance.Requests
	}
	msg.Subject = in.inbox
	if err := nc.PublishMsg(msg); err != nil {
		s.config.Logger.Warn("an answer could not be sent", "reply", in.inbox, "error", err)
	}
}
