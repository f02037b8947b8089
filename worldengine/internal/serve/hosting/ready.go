package hosting

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/service"
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

var (
	// errRemoving: until the removal by this server is done, nobody else may remove the world, or make it anew.
	errRemoving = errors.New("the world is being removed")
	// errRemoved: the world was removed while this server served it, or stood by for it.
	errRemoved = errors.New("the world was removed")
)

// errNotNow returns the error of a request to make or remove a world that this server can carry out later.
func errNotNow(world string, err error) error {
	return fmt.Errorf("%w: %s: %w; try again", service.ErrWorldNotServed, world, err)
}

// ready returns why the server is not ready to receive requests to the world; nil if it is. A ready
// server serves the world and is not stopping, has room to store, and has built the index. The log is
// not known to have lost a record, and has not left its questions unanswered for 15 s.
func (w *World) ready() error {
	s := w.state.Load()
	if s.tenure == nil {
		return s.unserved
	}
	e := s.tenure.engine
	if err := e.Status().StorageError(); err != nil {
		return err
	}
	if e.Watcher().Lost() != nil { // not returned: it names towns, and anybody may ask
		return fmt.Errorf("%w: see the alert LOG_LOST", commitlog.ErrLogLost)
	}
	if indexed, end := e.Status().IndexProgress(); end > 0 {
		return fmt.Errorf("the index is being built: it is at log sequence %d of %d", indexed, end)
	}
	return checkSilence(e.Watcher().Silence())
}

// checkSilence returns an error if the log has been silent too long.
func checkSilence(silence time.Duration) error {
	if silence >= silenceTimeout {
		return fmt.Errorf("the log has not answered for %s", silence.Round(time.Second))
	}
	return nil
}

// Ready returns why the server is not ready; nil if it is. A server of one world is ready when it
// serves the world. A server of several is ready unless it is stopping, or can serve none of them: it
// is also ready while it stands by for worlds that other servers serve.
func (ws *Worlds) Ready() error {
	all := ws.all()
	switch {
	case ws.config.Several():
	case len(all) == 0 && ws.isRemoving(ws.config.Names[0]):
		return errRemoving
	case len(all) == 0:
		return errRemoved
	default:
		return all[0].ready()
	}
	refusals := ws.refusals()
	switch {
	case ws.ctx.Err() != nil:
		return errDraining
	case len(all) == 0 || len(refusals) < len(all):
		return nil
	}
	return fmt.Errorf("none of the worlds is served: %s", ws.summarize(refusals))
}

// ReadyOf returns why the server is not ready to receive requests to a world; nil if it is.
func (ws *Worlds) ReadyOf(world string) error {
	if w := ws.get(world); w != nil {
		return w.ready()
	}
	return ws.whyNotHosted(world)
}

// Unserved returns why this server does not serve a world now; nil if it does.
func (ws *Worlds) Unserved(world string) error {
	if w := ws.get(world); w != nil {
		return w.state.Load().unserved
	}
	return ws.whyNotHosted(world)
}

// whyNotHosted returns why this server does not have a world.
func (ws *Worlds) whyNotHosted(world string) error {
	if ws.isRemoving(world) {
		return errRemoving
	}
	return errNotHosted
}

// refusals says for each world that should be served, and is not, why it is not.
func (ws *Worlds) refusals() (refusals []string) {
	for _, w := range ws.all() {
		if err := w.ready(); err != nil && !errors.Is(err, errStandby) {
			refusals = append(refusals, fmt.Sprintf("%s: %v", w.name, err))
		}
	}
	return refusals
}

// maxRefusals bounds the worlds that a text about the health names.
const maxRefusals = 20

// summarize makes a text of refusals. With access control it neither names nor counts the worlds, since
// anybody may ask, and users may not know of other worlds than theirs.
func (ws *Worlds) summarize(refusals []string) string {
	if ws.shared.ServiceConfig.Access != nil {
		return "handoffctl world list says why"
	}
	if more := len(refusals) - maxRefusals; more > 0 {
		refusals = append(refusals[:maxRefusals], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(refusals, "; ")
}

// Readyz answers whether the server is ready or, with ?world=NAME, whether it is ready to receive requests
// to a world. A ready server of several worlds without access control names those that should be served
// and are not. With access control the answer is the same for a world that does not exist and for one that is not
// served, since anybody may ask.
func (ws *Worlds) Readyz(w http.ResponseWriter, r *http.Request) {
	var world string
	err, public := ws.Ready(), ws.shared.ServiceConfig.Access == nil
	switch query := r.URL.Query(); {
	case query.Has("world"):
		world = query.Get("world")
		if err = ws.ReadyOf(world); err != nil && !public {
			err = errNotHosted
		}
	case !ws.config.Several():
		world = ws.config.Names[0]
	}
	httpd.AnswerProbe(w, err)
	if err != nil {
		return
	}
	if e := ws.EngineOf(world); e != nil && e.Watcher().Replicas.Damaged() != "" {
		fmt.Fprintln(w, "a node of NATS is damaged: see the alert REPLICA_DAMAGED")
	}
	if refusals := ws.refusals(); world == "" && public && len(refusals) > 0 {
		fmt.Fprintf(w, "not served: %s\n", ws.summarize(refusals))
	}
}
