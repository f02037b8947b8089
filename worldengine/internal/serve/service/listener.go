package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/natsconn"
)

// Listener is a NATS account in which a service receives requests and answers them.
type Listener struct {
	// Requests is the connection that requests arrive on. It is the service's own: Stop closes it.
	Requests *nats.Conn
	// Replies is the connection that answers go out on. It stays open.
	Replies *nats.Conn
	// Throttle makes Requests wait while the service is behind. Throttle.Wrap must have wrapped the
	// network connection of Requests.
	Throttle *Throttle

	// arrivals has the arriving requests of each endpoint, for all worlds. A channel for each endpoint
	// instead of a callback for each subscription keeps a world free of goroutines.
	arrivals []chan *nats.Msg
}

// startReceiving begins to receive the requests that arrive at a listener.
func (s *Service) startReceiving(listener *Listener) {
	for _, e := range s.endpoints {
		arrivals := make(chan *nats.Msg, arrivalCapacity)
		listener.arrivals = append(listener.arrivals, arrivals)
		s.receivers.Go(func() {
			for msg := <-arrivals; msg != nil; msg = <-arrivals {
				s.dispatch(listener, e, msg)
			}
		})
	}
	listener.Throttle.arrivals.Store(&listener.arrivals)
}

// dispatch hands a request to its addressee, unless that is closed. A message without subscription is a
// fence.
func (s *Service) dispatch(listener *Listener, e *endpoint, msg *nats.Msg) {
	if msg.Sub == nil {
		passed, _ := s.fences.LoadAndDelete(msg)
		close(passed.(chan struct{}))
		return
	}
	if a, crossed := s.addresseeOf(msg.Subject); a != nil {
		a.receive(listener, e, msg, crossed)
	}
}

// drainArrivals returns when all requests that NATS has sent to the listener are handled.
func (l *Listener) drainArrivals(ctx context.Context, s *Service) error {
	if err := natsconn.Flush(ctx, l.Requests); err != nil && !l.Requests.IsClosed() {
		return err
	}
	for _, arrivals := range l.arrivals {
		fence, passed := new(nats.Msg), make(chan struct{})
		s.fences.Store(fence, passed)
		select {
		case arrivals <- fence:
		case <-ctx.Done():
			s.fences.Delete(fence)
			return ctx.Err()
		}
		select {
		case <-passed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// close stops receiving. It returns when all requests that had arrived are handled.
func (l *Listener) close(ctx context.Context) error {
	err := l.drain(ctx)
	for _, arrivals := range l.arrivals {
		arrivals <- nil // not closed, since the connection may be closing still
	}
	return err
}

func (l *Listener) drain(ctx context.Context) error {
	closed := make(chan struct{})
	l.Requests.SetClosedHandler(func(*nats.Conn) { close(closed) })
	switch err := l.Requests.Drain(); {
	case errors.Is(err, nats.ErrConnectionClosed):
		return nil
	case err != nil:
		return fmt.Errorf("service: %w", err)
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		l.Requests.Close()
		return fmt.Errorf("service: requests are still arriving: %w", ctx.Err())
	}
}
