package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"worldengine/worldengine/commitlog"
)

// logAway is how long the log may be silent before the server counts as not ready. The election of a
// leader in a cluster takes less.
const logAway = 15 * time.Second

// The reasons why a server does not serve though nothing is wrong.
var (
	errStarting = errors.New("the server is starting")
	errStandby  = errors.New("standby: another server serves the world")
	errDraining = errors.New("the server is stopping")
)

// Ready is ReadyOf the only world.
func (s *Server) Ready() error { return s.only().ready() }

// ready returns why the server is not ready to take requests to the world; nil if it is. A ready
// server serves the world and is not stopping, has room to store, and has built the index. The log is
// not known to have lost a record, and has answered within 15 s.
func (h *hosted) ready() error {
	t := h.serving.Load()
	if t == nil {
		return *h.idle.Load()
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
	return logHeard(t.engine.LogSilence())
}

// logHeard returns an error if the log has been silent too long.
func logHeard(silence time.Duration) error {
	if silence >= logAway {
		return fmt.Errorf("the log has not answered for %s", silence.Round(time.Second))
	}
	return nil
}

// livez answers that the process is there. It asks nothing of NATS.
func livez(w http.ResponseWriter, _ *http.Request) { answerHealth(w, nil) }

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	err := s.Ready()
	answerHealth(w, err)
	if e := s.Engine(); err == nil && e != nil && e.ReplicaDamaged() != "" {
		fmt.Fprintln(w, "a node of NATS is damaged: see the alert REPLICA_DAMAGED")
	}
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
