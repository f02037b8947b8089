package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/store/commitlog"
)

// silenceTimeout is how long the log may leave questions unanswered before the server counts as not ready. The
// election of a leader in a cluster takes less.
const silenceTimeout = 15 * time.Second

// The reasons why a server does not serve though nothing is wrong.
var (
	errStarting = errors.New("the server is starting")
	errStandby  = errors.New("standby: another server serves the world")
	errDraining = errors.New("the server is stopping")
	// errNotHosted hides whether the world exists: anybody may ask.
	errNotHosted = errors.New("this server does not serve such a world: handoffctl world list says " +
		"why, and where it is served")
)

// ready returns why the server is not ready to receive requests to the world; nil if it is. A ready
// server serves the world and is not stopping, has room to store, and has built the index. The log is
// not known to have lost a record, and has not left its questions unanswered for 15 s.
func (h *hosted) ready() error {
	t := h.serving.Load()
	if t == nil {
		return *h.unserved.Load()
	}
	if err := t.engine.StorageError(); err != nil {
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
	if silence >= silenceTimeout {
		return fmt.Errorf("the log has not answered for %s", silence.Round(time.Second))
	}
	return nil
}

// livez answers that the process is there. It asks nothing of NATS.
func livez(w http.ResponseWriter, _ *http.Request) { answerHealth(w, nil) }

// Ready returns why the server is not ready; nil if it is. A server of one world is ready when it
// serves the world. A server of several is ready unless it is stopping, or can serve none of them: it
// is also ready while it stands by for worlds that other servers serve.
func (s *Server) Ready() error {
	all := s.worlds.all()
	switch {
	case !s.config.several() && len(all) == 0:
		return errRemoved
	case !s.config.several():
		return all[0].ready()
	case s.draining.Load():
		return errDraining
	case len(all) == 0:
		return nil
	}
	refused := s.refused()
	if len(refused) < len(all) {
		return nil
	}
	return fmt.Errorf("none of the worlds is served: %s", s.tally(refused))
}

// ReadyOf returns why the server is not ready to receive requests to a world; nil if it is.
func (s *Server) ReadyOf(world string) error {
	if h := s.worlds.get(world); h != nil {
		return h.ready()
	}
	return errNotHosted
}

// refused returns the worlds that should be served, and are not.
func (s *Server) refused() (refused []*hosted) {
	for _, h := range s.worlds.all() {
		if err := h.ready(); err != nil && !errors.Is(err, errStandby) {
			refused = append(refused, h)
		}
	}
	return refused
}

// maxRefused bounds the worlds that a text about the health names.
const maxRefused = 20

// tally says why worlds are not served. With access control it neither names nor counts them, since
// anybody may ask, and users may not know of other worlds than theirs.
func (s *Server) tally(refused []*hosted) string {
	if s.config.Access != nil {
		return "handoffctl world list says why"
	}
	var why []string
	for _, h := range refused[:min(len(refused), maxRefused)] {
		if err := h.ready(); err != nil { // it may be served by now
			why = append(why, fmt.Sprintf("%s: %v", h.world, err))
		}
	}
	if more := len(refused) - maxRefused; more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(why, "; ")
}

// readyz answers whether the server is ready or, with ?world=NAME, whether it is ready to receive requests
// to a world. A ready server of several worlds without access control names those that should be served
// and are not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("world") {
		s.worldReadyz(w, r.URL.Query().Get("world"))
		return
	}
	err := s.Ready()
	answerHealth(w, err)
	if err != nil {
		return
	}
	if !s.config.several() {
		warnReplica(w, s.Engine())
	} else if refused := s.refused(); len(refused) > 0 && s.config.Access == nil {
		fmt.Fprintf(w, "not served: %s\n", s.tally(refused))
	}
}

// worldReadyz answers for one world. With access control the answer is the same for a world that does
// not exist and for one that is not served, since anybody may ask.
func (s *Server) worldReadyz(w http.ResponseWriter, world string) {
	err := s.ReadyOf(world)
	if err != nil && s.config.Access != nil {
		err = errNotHosted
	}
	answerHealth(w, err)
	if err == nil {
		warnReplica(w, s.EngineOf(world))
	}
}

// warnReplica writes that a node of NATS is damaged, if one is.
func warnReplica(w http.ResponseWriter, e *engine.Engine) {
	if e != nil && e.ReplicaDamaged() != "" {
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
