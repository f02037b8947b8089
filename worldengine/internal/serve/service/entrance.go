package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Entrance is a NATS account in which a service receives requests and answers them.
type Entrance struct {
	// Requests is the connection that requests arrive on. It is the service's own: Stop closes it.
	Requests *nats.Conn
	// Replies is the connection that answers go out on. It stays open.
	Replies *nats.Conn
	// Intake makes Requests wait while the service is behind. Intake.Wrap must have wrapped the
	// network connection of Requests.
	Intake *Intake

	// arrivals has the arriving requests of each endpoint, for all worlds. A channel for each endpoint
	// instead of a callback for each subscription keeps a world free of goroutines.
	arrivals []chan *nats.Msg
}

// receiveFrom begins to receive the requests that arrive at an entrance.
func (s *Service) receiveFrom(in *Entrance) {
	for _, e := range s.endpoints {
		arrivals := make(chan *nats.Msg, arrivalRoom)
		in.arrivals = append(in.arrivals, arrivals)
		s.receivers.Go(func() {
			for msg := <-arrivals; msg != nil; msg = <-arrivals {
				s.receive(in, e, msg)
			}
		})
	}
	in.Intake.arrivals.Store(&in.arrivals)
}

// receive hands a request to its world, unless that is closed. A message without subscription is a
// fence.
func (s *Service) receive(in *Entrance, e *endpoint, msg *nats.Msg) {
	if msg.Sub == nil {
		passed, _ := s.fences.LoadAndDelete(msg)
		close(passed.(chan struct{}))
		return
	}
	if w, crossed := s.addressee(msg.Subject); w != nil {
		w.handle(in, e, msg, crossed)
	}
}

// drainArrivals returns when all requests that NATS has sent to the entrance are handled.
func (in *Entrance) drainArrivals(ctx context.Context, s *Service) error {
	if err := in.Requests.FlushWithContext(ctx); err != nil && !in.Requests.IsClosed() {
		return err
	}
	for _, arrivals := range in.arrivals {
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
func (in *Entrance) close(ctx context.Context) error {
	err := in.drain(ctx)
	for _, arrivals := range in.arrivals {
		arrivals <- nil // not closed, since the connection may be closing still
	}
	return err
}

func (in *Entrance) drain(ctx context.Context) error {
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
