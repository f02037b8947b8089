package game

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/town"
)

// Client gets the answer to a handoff.
type Client = queue.Client[machine.Answer]

// Application is a pending handoff in this writer's hands: it asks the plugin or the console to
// apply the command, and commits the outcome. Its goroutine owns the members that no lock guards.
type Application struct {
	alerts.About // the town, the handoff, the run
	apply.Decoded
	// stored is the pending command at the start of the application.
	stored *apply.Pending
	before town.State
	// own says that this writer committed the pending handoff.
	own bool
	// patient is when the client is answered if the game is absent then; zero if the command does not
	// wait for an absent game.
	patient time.Time
	// finished reports that the outcome is final. It is set in the town's turn.
	finished bool

	token   string // of the reply subject
	replies chan Reply
	// knows reports that this writer knows all requests for the command: it committed the command
	// itself, or the earlier writer stopped before any request had arrived.
	knows atomic.Bool
	// away is the wait for a game, nil unless the last request reached nobody.
	away atomic.Pointer[messages.AbsentPlugin]

	mu     sync.Mutex // guards the rest
	client Client     // nil once it is answered, and if an earlier writer committed the handoff
	// fate reports whether a request may have arrived, as far as is known. closed counts the
	// cancellations that block further requests.
	fate   apply.Arrival
	closed int
}

func newApplication(about alerts.About) *Application {
	return &Application{
		About: about, token: nuid.Next(), replies: make(chan Reply, maxReplies),
	}
}

// maxReplies bounds the replies that wait.
const maxReplies = 64

// Deliver gives the application a reply, or drops it if maxReplies wait.
func (a *Application) Deliver(r Reply) {
	select {
	case a.replies <- r:
	default: // the request is sent again
	}
}

// next returns the next reply, or the zero reply if none comes within wait. A wait for an absent game
// also ends at a.patient, so that the client is answered.
func (a *Application) next(ctx context.Context, wait time.Duration) Reply {
	if left := time.Until(a.patient); left > 0 && a.away.Load() != nil {
		wait = min(wait, left)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-a.replies:
		return r
	case <-timer.C:
	case <-ctx.Done():
	}
	select { // a reply that has arrived counts even after the time
	case r := <-a.replies:
		return r
	default:
		return Reply{}
	}
}

// pass reports whether a request may be sent. If so, the request's fate is unknown until learn is
// called.
func (a *Application) pass() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed == 0 && a.fate == apply.NotArrived {
		a.fate = apply.MayArrive
	}
	return a.closed == 0
}

// learn records the fate of the last request. It ignores MayArrive, and keeps a recorded
// MayHaveArrived.
func (a *Application) learn(fate apply.Arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if fate != apply.MayArrive && a.fate != apply.MayHaveArrived {
		a.fate = fate
	}
}

// arrival returns whether a request may have arrived, as far as is known.
func (a *Application) arrival() apply.Arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fate
}

// close blocks further requests until open is called as often as close.
func (a *Application) close() { a.shut(1) }

func (a *Application) open() { a.shut(-1) }

func (a *Application) shut(by int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed += by
}

// isOpen reports whether no cancellation blocks requests.
func (a *Application) isOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed == 0
}

// answer answers the client, once.
func (a *Application) answer(answer machine.Answer, err error) {
	a.mu.Lock()
	client := a.client
	a.client = nil
	a.mu.Unlock()
	if client != nil {
		client.Answer(answer, err)
	}
}
