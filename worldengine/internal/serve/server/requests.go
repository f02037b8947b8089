package server

import (
	"context"

	"worldengine/worldengine/internal/serve/service"
)

// serveRequests starts the service of all worlds. It receives requests in the world's account and, if an
// embedded NATS has an account for clients without credentials, in that account. With access control
// the requests of clients cross to the world's account, and NATS marks them with their user on the
// way.
func (s *Server) serveRequests(context.Context) (err error) {
	listeners := []service.Listener{{Replies: s.conn}}
	purposes := []purpose{requesting}
	if s.config.anonymousClients() {
		if s.answering, err = s.connect(answering, nil); err != nil {
			return err
		}
		listeners = append(listeners, service.Listener{Replies: s.answering})
		purposes = append(purposes, requestingClients)
	}
	for i := range listeners {
		in := &listeners[i]
		in.Throttle = new(service.Throttle)
		if in.Requests, err = s.connect(purposes[i], in.Throttle); err != nil {
			for _, other := range listeners[:i] {
				other.Requests.Close()
			}
			return err
		}
	}
	s.service = service.New(listeners, s.config.Service)
	return nil
}

func (s *Server) stopRequests(ctx context.Context) error { return s.service.Stop(ctx) }
