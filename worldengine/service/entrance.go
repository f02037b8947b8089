package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/wire"
)

// Entrance is a NATS account in which a service takes requests and answers them.
type Entrance struct {
	// Requests is the connection that requests arrive on. It is the service's own: Stop closes it.
	Requests *nats.Conn
	// Replies is the connection that answers go out on. It stays open.
	Replies *nats.Conn
	// Intake is that of Requests; nil where Requests does not wait for the service.
	Intake *Intake
}

// replyTo is where the answer to a request goes.
type replyTo struct {
	entrance *Entrance
	inbox    string // empty where the client waits for no answer
	verb     wire.Verb
	start    time.Time // of the request's arrival
}

// pendingMessages and intakeBytes are what nats.go keeps for a subscription where there is no
// Intake: what comes when that is full is lost without an answer.
const pendingMessages = 500_000

// open subscribes to the endpoints and to discovery in the account of an entrance.
func (s *Service) open(in *Entrance, endpoints []endpoint, d *discovery) error {
	var all []*nats.Subscription
	for i := range endpoints {
		subs, err := s.subscribe(in, &endpoints[i])
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
	if err := d.subscribe(in); err != nil {
		return err
	}
	// NATS must know the subscriptions before the caller reports that the world is served.
	if err := in.Requests.Flush(); err != nil {
		return fmt.Errorf("service: the endpoints cannot be announced: %w", err)
	}
	return nil
}

// subscribe subscribes to a verb: on its public subject and, with access control, on that on which
// the requests from the clients' account arrive.
func (s *Service) subscribe(in *Entrance, e *endpoint) (subs []*nats.Subscription, err error) {
	subject := wire.Subject(s.config.World, e.verb)
	subjects := []string{subject}
	if s.config.Access != nil {
		subjects = append(subjects, wire.CrossedSubject(subject))
	}
	for _, on := range subjects {
		sub, err := in.Requests.QueueSubscribe(on, queueGroup, func(msg *nats.Msg) {
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

// close stops taking requests, and returns when every one that had arrived was handled.
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
		return fmt.Errorf("service: requests are still arriving: %w", ctx.Err())
	}
}

// respond sends an answer. It is not sent where the client waits for none: the request was carried
// out all the same. take has checked that the subject is an inbox.
func (s *Service) respond(to replyTo, msg *nats.Msg) {
	if to.inbox != "" {
		s.publish(to.entrance.Replies, to.inbox, msg)
	}
}

// respondOnArrival sends an answer on the connection that the request came on, so that a flood of
// requests that are not taken does not stand in the way of commits and of other answers.
func (s *Service) respondOnArrival(to replyTo, msg *nats.Msg) {
	if to.inbox != "" {
		s.publish(to.entrance.Requests, to.inbox, msg)
	}
}

func (s *Service) publish(nc *nats.Conn, inbox string, msg *nats.Msg) {
	msg.Subject = inbox
	if err := nc.PublishMsg(msg); err != nil {
		s.config.Logger.Warn("an answer could not be sent", "reply", inbox, "error", err)
	}
}
