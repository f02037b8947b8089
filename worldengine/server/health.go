package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"worldengine/worldengine/commitlog"
)

// Bounds of the question whether a server is ready.
const (
	// logAway is how long the log may be silent before the server counts as not ready. The election
	// of a leader in a cluster takes less.
	logAway = 15 * time.Second
	// askLog bounds one question to the log, and askAgain is how long an answer counts.
	askLog   = 2 * time.Second
	askAgain = time.Second
)

// Why a server is not ready though nothing is wrong.
var (
	errStarting = errors.New("the server is starting")
	errStandby  = errors.New("standby: another server serves the world")
	errDraining = errors.New("the server is stopping")
)

// health knows whether a server is ready. It is safe for concurrent use.
type health struct {
	draining atomic.Bool
	standby  atomic.Bool           // another server serves, or did at the last look
	refused  atomic.Pointer[error] // why this server could not take over the last time

	mu    sync.Mutex
	asked time.Time // when the log was asked last
	seen  bool      // whether it has ever answered
	away  time.Time // the time of the first unanswered question since its last answer
	err   error     // the error of the last question
}

// check returns an error if the log has been silent for too long, or has never answered. reach asks
// the log, at most once within askAgain.
func (h *health) check(ctx context.Context, reach func(context.Context) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.asked.IsZero() || now.Sub(h.asked) >= askAgain {
		// All callers share the question, so it does not end with the request of the first caller.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLog)
		defer cancel()
		h.asked = now
		switch h.err = reach(ctx); {
		case h.err == nil:
			h.seen, h.away = true, time.Time{}
		case h.away.IsZero():
			h.away = now
		}
	}
	if h.err != nil && (!h.seen || now.Sub(h.away) >= logAway) {
		return fmt.Errorf("the log does not answer: %w", h.err)
	}
	return nil
}

// Ready returns why the server is not ready to take requests; nil if it is. A ready server serves
// and is not stopping, has room to store, and has built the index. Its log has lost no known
// record, has answered, and has not been silent for 15 s.
func (s *Server) Ready(ctx context.Context) error {
	t, refused := s.serving.Load(), s.health.refused.Load()
	switch {
	case s.health.draining.Load():
		return errDraining
	case t == nil && refused != nil:
		return fmt.Errorf("standby: the world cannot be served: %w", *refused)
	case t == nil && s.health.standby.Load():
		return errStandby
	case t == nil:
		return errStarting
	}
	if err := t.engine.MayStore(); err != nil {
		return err
	}
	if t.engine.LogLost() != nil { // not returned: it names towns, and anybody may ask
		return fmt.Errorf("%w: see the alert LOG_LOST", commitlog.ErrLogLost)
	}
	if indexed, end := t.engine.IndexProgress(); end > 0 {
		return fmt.Errorf("the index is being built: it is at log sequence %d of %d", indexed, end)
	}
	return s.health.check(ctx, t.engine.Reach)
}

// livez answers that the process is there. It asks nothing of NATS.
func livez(w http.ResponseWriter, _ *http.Request) { answerHealth(w, nil) }

// readyz answers whether the server is ready.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	answerHealth(w, s.Ready(r.Context()))
}

func answerHealth(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "not ready: %v\n", err)
		return
	}
	fmt.Fprintln(w, "ok")
}
