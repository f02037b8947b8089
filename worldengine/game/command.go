package game

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"worldengine/handoff"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
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
	// stored is the pending command at the start.
	stored *apply.Pending
	before town.State
	// own says that this writer committed the pending handoff.
	own bool
	// begun is this writer's last committed attempt; ends is the end of the present one, by the
	// machine's monotonic clock.
	begun int64
	ends  time.Time
	// paused is since when the town or the world was paused at the takeover; stood is how long the
	// present attempt's deadline stood still in that pause.
	paused time.Time
	stood  time.Duration
	// taken is the start by the machine's monotonic clock.
	taken time.Time
	// finished reports that the outcome is final. It is set in the town's turn.
	finished bool
	look     look // Watch's

	token   string // of the reply subject
	replies chan Reply
	// knows says that this writer knows of all requests for the command: it is its own, or the writer
	// before stopped when none had arrived.
	knows atomic.Bool
	// away is the wait for a game, nil unless the last request reached nobody.
	away atomic.Pointer[Wait]
	// started counts the attempts that the log has as started, each of which ends a pause of the run.
	started atomic.Int64
	// unsettled counts the cancellations that keep the application closed because the log has not
	// confirmed whether they are stored.
	unsettled atomic.Int64

	mu      sync.Mutex // guards the rest
	clients []Client
	ended   bool // the clients were answered for good
	// asking reports that a request is out with unknown fate, reached that one may have arrived, and
	// closed counts the cancellations that let no further one pass.
	asking, reached bool
	closed          int
}

func newApplication(about alerts.About) *Application {
	return &Application{
		About: about, token: nuid.Next(), replies: make(chan Reply, maxReplies), taken: time.Now(),
	}
}

// maxReplies bounds the replies that wait. Others are lost; the request is sent again.
const maxReplies = 64

// Deliver gives the application a reply.
func (a *Application) Deliver(r Reply) {
	select {
	case a.replies <- r:
	default: // it has more answers than it can read, and asks again
	}
}

// next returns the next reply, or the zero reply if none comes within wait.
func (a *Application) next(ctx context.Context, wait time.Duration) Reply {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-a.replies:
		return r
	case <-timer.C:
	case <-ctx.Done():
	}
	select { // a reply that is there counts, also if the time is over
	case r := <-a.replies:
		return r
	default:
		return Reply{}
	}
}

// pass reports whether a request may be sent, and then counts it as out.
func (a *Application) pass() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = a.asking || a.closed == 0
	return a.closed == 0
}

// learn records the fate of the request that is out, unless that is not known yet.
func (a *Application) learn(fate apply.Arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch fate {
	case apply.MayHaveArrived:
		a.reached = true
	case apply.NotArrived:
		a.asking = false
	}
}

// arrival returns whether a request may have arrived, as far as is known.
func (a *Application) arrival() apply.Arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.reached:
		return apply.MayHaveArrived
	case a.asking:
		return apply.MayArrive
	}
	return apply.NotArrived
}

// close lets no further request pass until open is called as often.
func (a *Application) close() { a.shut(1) }

func (a *Application) open() { a.shut(-1) }

func (a *Application) shut(by int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed += by
}

// isOpen reports whether requests may pass.
func (a *Application) isOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed == 0
}

// join adds a client, unless it is nil. It reports whether the application goes on.
func (a *Application) join(client Client) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if client != nil && !a.ended {
		a.clients = append(a.clients, client)
	}
	return !a.ended
}

// answer answers the clients that wait, each once. With ended nobody joins them any more.
func (a *Application) answer(ended bool, answer machine.Answer, err error) {
	a.mu.Lock()
	clients := a.clients
	a.clients, a.ended = nil, a.ended || ended
	a.mu.Unlock()
	for _, client := range clients {
		client.Answer(answer, err)
	}
}

// Ensure starts this writer's application of a town's pending handoff, if there is none: another
// request may have found in the log what this writer has just committed. It is called in the town's
// turn. client gets the answer; it is nil except for the handoff that this writer has just
// committed. Ensure fails if the stored command is unreadable.
func (w *Worker) Ensure(townID string, current commitlog.Entry, client Client) error {
	if a := w.applications.of(townID, current.Pending.Run.RunID); a != nil && a.join(client) {
		return nil
	}
	read, err := current.Pending.Read()
	if err != nil {
		return err
	}
	run := current.Pending.Run
	a := newApplication(alerts.About{
		TownID: townID, HandoffID: read.Handoff.HandoffID, RunID: run.RunID, Trace: run.Trace,
	})
	a.Decoded, a.stored, a.before, a.own = read, current.Pending, current.State, client != nil
	a.knows.Store(a.own)
	a.join(client)
	if a.own {
		a.begun = a.Pending.Attempt
		// A pause of the world that came while the command was committed is still to be looked at.
		if world := w.config.WorldPause.Known(); world.By == nil {
			a.look.seen = seen{town: current.Seq, world: world.Seq}
		}
	} else if by := w.config.WorldPause.Of(current); by != nil {
		a.paused = by.At
	}
	if !w.applications.add(a, func() { w.run(w.ctx, a) }) && a.own {
		w.rest(a) // this server ends, and sends no request
		a.answer(true, machine.Answer{}, ErrInProgress)
	}
	return nil
}

// run applies until the handoff is concluded, here or elsewhere, or ctx is done.
func (w *Worker) run(ctx context.Context, a *Application) {
	defer func() {
		if !a.finished {
			w.rest(a)
			w.release(a, false, machine.Answer{}, ErrInProgress)
			w.config.Queue.Unpark(a.TownID)
		}
	}()
	if !a.own && !w.takeOver(ctx, a) {
		return
	}
	for ctx.Err() == nil {
		attempt := a.Pending.Attempt
		v, ok := w.attempt(ctx, a)
		if !ok {
			return
		}
		v.Attempt, v.At = attempt, w.steps.Now()
		if w.commitOutcome(ctx, a, v) {
			return
		}
	}
}

// finish ends an application with its answer, or an error, in the town's turn: the town's next
// request finds it gone.
func (w *Worker) finish(a *Application, v apply.Result, answer machine.Answer, err error) {
	a.finished = true
	if !v.Applied && err == nil && answer.Result.Executed {
		w.Absences.Present(w.ctx, a.About) // a plugin answered another writer
	}
	gaveUp := err != nil || answer.Result.Status == handoff.Failed
	w.config.Queue.Answering(a.TownID)
	w.release(a, gaveUp, answer, err)
	// An answer that itself failed the handoff, by its state, was not late.
	invalid := err == nil && answer.Result.ReasonCode == apply.ReasonPluginStateInvalid
	if gaveUp && v.Applied && !invalid { // another writer had given up before
		w.config.Alerts.RaiseOnce(alerts.LateAnswer.About(a.About))
	}
}

// release ends an application and answers its waiting clients.
func (w *Worker) release(a *Application, gaveUp bool, answer machine.Answer, err error) {
	w.config.Router.Forget(a, gaveUp)
	w.applications.remove(a)
	a.answer(true, answer, err)
}

// restTimeout bounds the time in which a stopping writer stores that a command rests.
const restTimeout = 2 * time.Second

// rest stores that this writer stops, and that no request for a's command has arrived. If it cannot,
// the next writer has to assume that one may have.
func (w *Worker) rest(a *Application) {
	if !a.knows.Load() || a.Pending.Reached || a.arrival() != apply.NotArrived {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), restTimeout)
	defer cancel()
	current, err := w.steps.Log.Load(ctx, a.TownID)
	if err == nil && !w.supersededBy(current, a) && !current.Pending.Reached {
		err = w.arrived(ctx, a.TownID, current, machine.Arrival{Rests: true})
	}
	if err != nil {
		w.config.Logger.Warn("a command is not asked for any more, and the log does not say that "+
			"no request has arrived", "town", a.TownID, "run", a.RunID, "error", err)
	}
}

// takeOver takes a's command over from an earlier writer, after the town's pause if there is one.
// From then on the record says that a request may have arrived, unless the command rests; a
// suspended writer that still had the command loses its races for the town. It reports whether the
// command is still pending.
func (w *Worker) takeOver(ctx context.Context, a *Application) bool {
	stood, gone := w.waitUnpaused(ctx, a)
	if gone || ctx.Err() != nil {
		return false
	}
	if now := w.steps.Now(); !a.paused.IsZero() {
		stood = max(min(now.Sub(a.paused), now.Sub(a.Pending.NotBefore)), 0)
	}
	a.stood = stood
	rested := false
	pauses := backoff.Backoff{Min: pollPause, Max: maxCommitPause, Draw: w.steps.Log.Draw}
	for {
		err := w.steps.Log.Retry(ctx, func() error {
			current, err := w.steps.Log.Load(ctx, a.TownID)
			if err != nil {
				return err
			}
			gone, rested = w.supersededBy(current, a) || !w.steps.Serves(), false
			if gone || current.Pending.Reached {
				return nil
			}
			rested = current.Pending.Rested
			return w.arrived(ctx, a.TownID, current, machine.Arrival{MayHaveArrived: !rested})
		})
		if err == nil {
			p := *a.Pending
			p.Reached, p.Rested = !rested, false
			a.Pending = &p
			a.knows.Store(rested)
			return !gone
		}
		if pauses.Wait(ctx) != nil {
			return false
		}
	}
}

// spans returns the time until a's present attempt begins, and its duration.
func (w *Worker) spans(a *Application) (pause, lasts time.Duration) {
	return a.Pending.Spans(&w.config.Policy, a.begun, w.steps.Now().Add(-a.stood))
}

// sighted records that a plugin replied to a request, or that NATS found none subscribed, and
// whether the attempt is over.
func (w *Worker) sighted(ctx context.Context, a *Application, absent, over bool) {
	if absent {
		w.Absences.Absent(ctx, a.About, 1+w.config.Queue.Waiting(a.TownID), over)
	} else {
		w.Absences.Present(ctx, a.About)
	}
}
