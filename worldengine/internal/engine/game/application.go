package game

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
)

// Client gets the answer to a handoff.
type Client = queue.Client[machine.Answer]

// Application is a pending handoff in this writer's hands: it asks the plugin or the console to apply
// the command, and commits the outcome. Its goroutine owns the members that no comment excepts; what
// others want of it, they send.
type Application struct {
	alerts.Subject // the town, the handoff, the run
	apply.Decoded
	// stored is the pending command at the start of the application.
	stored *apply.Pending
	before town.State
	// own says that this writer committed the pending handoff.
	own bool
	// patient is when the client is answered if the game is absent then; zero if the command does not
	// wait for an absent game.
	patient time.Time
	// finished reports that the outcome is final.
	finished bool
	client   Client // nil once it is answered, and if an earlier writer committed the handoff
	// knows reports that this writer knows all requests for the command: it committed the command
	// itself, or the earlier writer stopped before any request had arrived.
	knows bool
	// fate reports whether a request may have arrived, as far as is known. noted are the cancellations
	// that wait until it is known.
	fate  apply.Arrival
	noted []*cancellation
	// unconfirmed reports that a cancellation may be stored, or may be stored yet.
	unconfirmed bool

	token   string // of the reply subject
	replies chan Reply
	cancels chan *cancellation
	woken   chan struct{} // has an element when a pause may have begun or ended
	ended   chan struct{} // closed when the goroutine has ended
	// away is the wait for a game, nil unless the last request reached nobody. Others read it.
	away atomic.Pointer[messages.AbsentPlugin]
}

func newApplication(about alerts.Subject) *Application {
	return &Application{
		Subject: about, token: nuid.Next(), replies: make(chan Reply, maxReplies),
		cancels: make(chan *cancellation), woken: make(chan struct{}, 1),
		ended: make(chan struct{}),
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

// wake has the application look again whether there is a pause.
func (a *Application) wake() {
	select {
	case a.woken <- struct{}{}:
	default: // it is about to look
	}
}

// sends records that a request is sent: its fate is unknown until learn is called.
func (a *Application) sends() {
	if a.fate == apply.NotArrived {
		a.fate = apply.MayArrive
	}
}

// learn records the fate of the last request. It ignores MayArrive, and keeps a recorded
// MayHaveArrived.
func (a *Application) learn(fate apply.Arrival) {
	if fate != apply.MayArrive && a.fate != apply.MayHaveArrived {
		a.fate = fate
	}
}

// answer answers the client, once.
func (a *Application) answer(answer machine.Answer, err error) {
	if client := a.client; client != nil {
		a.client = nil
		client.Answer(answer, err)
	}
}

// next returns the next of the replies, or the zero Reply if none comes within wait. Meanwhile it
// carries out cancellations. Without replies it also returns when a is woken. While the game is
// absent, the wait also ends at a.patient, so that the client is answered. The error is ctx's, or
// that the run has ended.
func (w *Worker) next(
	ctx context.Context, a *Application, wait time.Duration, replies <-chan Reply,
) (r Reply, err error) {
	if left := time.Until(a.patient); left > 0 && a.away.Load() != nil {
		wait = min(wait, left)
	}
	over := time.After(wait)
	woken := a.woken
	if replies != nil {
		woken = nil
	}
	for err == nil {
		var undecided <-chan time.Time
		if len(a.noted) > 0 {
			undecided = time.After(time.Until(a.noted[0].until))
		}
		select {
		case r = <-replies:
			return r, ctx.Err()
		case c := <-a.cancels:
			err = w.carryOut(ctx, a, c)
		case <-undecided:
			err = w.decideNoted(ctx, a)
		case <-woken:
			return r, ctx.Err()
		case <-over:
			select { // a reply that has arrived counts even after the time
			case r = <-replies:
			default:
			}
			return r, ctx.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return r, err
}
