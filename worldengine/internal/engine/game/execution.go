package game

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
)

// Client gets the answer to a handoff.
type Client = queue.Client[machine.Answer]

// Execution is a pending command in this writer's hands: the leading task of its town's queue. In its
// turns it asks the plugin or the console to apply the command, and commits the outcome. Replies come
// from outside; all else is the town's turn's alone.
type Execution struct {
	alerts.Subject // the town, the handoff, the run
	apply.DecodedPending
	dispatcher *Dispatcher
	via        apply.Binding
	before     town.State
	client     Client // nil once it is answered, and if an earlier writer committed the handoff
	// answerBy is when the client is answered if the game is absent then; zero if the command does not
	// wait for an absent game.
	answerBy time.Time

	token   string // of the reply subject
	replies chan Reply

	// unclaimed reports that an earlier writer accepted the command, and this one has still to take it
	// over. over reports that the execution has ended.
	unclaimed, over bool
	// reach reports whether a request may have arrived, as far as is known. deferredCancels are the cancellations
	// that wait until it is known.
	reach           apply.Reach
	deferredCancels []*cancellation
	// unconfirmed is set if a commit of a cancellation got no answer: it may be stored already, or be stored
	// later.
	unconfirmed bool
	// paused reports whether the run is paused in the log; nil if that is not known.
	paused *bool

	// due is when the execution goes on: the attempt begins, a request is sent, a commit is repeated.
	due time.Time
	// reread is when the town is read from the log again. readErr is why it could not be read; nil if it
	// could. reads are the pauses between two reads that fail.
	reread  time.Time
	readErr error
	reads   backoff.Backoff
	// waitingSince is when the execution began to wait for the end of a pause, or for the log; zero if it
	// does not.
	waitingSince time.Time
	// command is the request of the attempt, which began at attemptStart; nil before.
	command      *apply.Command
	attemptStart time.Time
	// plugin decides about the requests of the attempt, and action is its next one.
	plugin *apply.PluginAttempt
	action apply.PluginAction
	// unreached reports that the last request reached nobody.
	unreached bool
	console   consoleWait
	// outcome is the end of the attempt, to be committed; nil before. commits are the pauses between
	// two tries.
	outcome *apply.AttemptResult
	commits backoff.Backoff
}

// maxReplies bounds the replies that wait.
const maxReplies = 64

func (d *Dispatcher) newExecution(townID string, current machine.Town) (*Execution, error) {
	read, err := current.Pending.Decode()
	if err != nil {
		return nil, err
	}
	run := current.Pending.Run
	x := newExecution(d, alerts.Subject{
		TownID: townID, HandoffID: read.Handoff.HandoffID, RunID: run.RunID, Trace: run.Trace,
	})
	x.DecodedPending, x.via, x.before = read, current.Pending.Binding, current.State
	if d.config.Retry.Absence == apply.AbsenceWait {
		x.answerBy = time.Now().Add(d.config.Limits.Absence)
	}
	x.awaitAttempt()
	return x, nil
}

func newExecution(d *Dispatcher, about alerts.Subject) *Execution {
	draw := d.stepper.Log.Jitter
	return &Execution{
		Subject: about, dispatcher: d, token: nuid.Next(), replies: make(chan Reply, maxReplies),
		reread: time.Now().Add(d.config.Retry.Resend), paused: new(bool),
		reads:   backoff.Backoff{Min: pollPause, Max: maxCommitPause, Jitter: draw},
		commits: backoff.Backoff{Min: pollPause, Max: maxCommitPause, Jitter: draw},
		console: consoleWait{
			pauses: backoff.Backoff{Min: pollPause, Max: d.config.Retry.Resend, Jitter: draw},
		},
	}
}

// Deliver gives the execution a reply, or drops it if maxReplies wait.
func (x *Execution) Deliver(r Reply) {
	select {
	case x.replies <- r:
		x.dispatcher.config.Queue.WakeLead(x.TownID)
	default: // the request is sent again
	}
}

// Run goes on with the execution in its turn. It returns the time of the next turn; zero if the
// execution is over. A dispatcher that has stopped waits for the end of a request to a console alone.
func (x *Execution) Run(ctx context.Context, _ queue.Turn) (next time.Time) {
	ctx, cancel := context.WithTimeout(ctx, x.dispatcher.config.Timeout)
	defer cancel()
	for x.advance(ctx) {
	}
	if x.dispatcher.ctx.Err() != nil && !x.console.inFlight {
		x.abandon(ctx)
	}
	if x.over {
		return next
	}
	if next = x.due; x.console.inFlight {
		next = queue.UntilWoken
	}
	if x.outcome == nil { // another server may pause the town
		next = earlier(next, x.reread)
	}
	if x.mayReportAbsence() && time.Now().Before(x.answerBy) {
		next = earlier(next, x.answerBy)
	}
	if len(x.deferredCancels) > 0 {
		next = earlier(next, x.deferredCancels[0].until)
	}
	return next
}

// mayReportAbsence reports whether the client may be answered that the game is absent. In a pause it is answered that
// the town, or the world, is paused.
func (x *Execution) mayReportAbsence() bool {
	return x.unreached && (x.waitingSince.IsZero() || x.readErr != nil)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// End leaves the command to the next writer.
func (x *Execution) End(ctx context.Context, why error) {
	if errors.Is(why, queue.ErrPanicked) {
		x.reach = apply.MayBeReached
	}
	x.abandon(ctx)
}

// advance makes the next step that is due, and reports whether there may be another one.
func (x *Execution) advance(ctx context.Context) (more bool) {
	x.receive(ctx)
	x.decideDeferred(ctx)
	now := time.Now()
	due := !now.Before(x.due) || !x.waitingSince.IsZero()
	switch {
	case x.over:
		return false
	case x.outcome != nil:
		return due && x.commit(ctx)
	case x.dispatcher.ctx.Err() != nil:
		return false
	}
	if x.mayReportAbsence() && !x.answerBy.IsZero() && !now.Before(x.answerBy) {
		since := x.dispatcher.Absences.StartOf(x.TownID)
		x.answer(machine.Answer{}, waiting.GameAbsent(x.TownID, x.via, since, x.RunID, ""))
	}
	due = due && !x.console.inFlight
	if due && x.plugin != nil && !x.action.Send {
		x.replied(ctx, Reply{}) // no reply came in time
		return true
	}
	attempt := x.Pending.Attempt
	current, err := x.readTown(ctx, due)
	by := x.dispatcher.config.WorldPause.Effective(current)
	// A plugin that may be working on the command is asked even in a pause, or if the log is silent.
	inHand := x.plugin != nil && x.plugin.IsInHand()
	switch {
	case x.over || !due:
		return false
	case x.Pending.Attempt != attempt:
		return true
	case err != nil && !(inHand && current.Seq == 0), by != nil && !inHand:
		x.postpone(now, waiting.Reason{Pause: by, World: current.Paused == nil}, err)
		return false
	case !x.waitingSince.IsZero() && x.plugin != nil:
		x.plugin.Prolong(now.Sub(x.waitingSince))
	}
	x.waitingSince = time.Time{}
	switch {
	case x.unclaimed:
		return x.claim(ctx, current)
	case x.command == nil:
		x.startAttempt(ctx)
	}
	if x.via == apply.RCON {
		return x.askConsole()
	}
	return x.askPlugin(ctx)
}

// isFirst reports whether the next request is the first one of all for the command: this writer has
// just committed the command, so its town need not be read again.
func (x *Execution) isFirst() bool {
	return !x.unclaimed && x.command == nil && x.Pending.Attempt == 1 && x.via != apply.RCON &&
		x.waitingSince.IsZero() && !x.unconfirmed
}

// readTown is loadTown, and confirm if the next step is due. While the log is silent, it asks the log less and
// less often, and repeats its error at once in between: the requests behind the command have their turns.
func (x *Execution) readTown(ctx context.Context, due bool) (current machine.Town, err error) {
	again := !time.Now().Before(x.reread)
	if x.readErr != nil && !again {
		return current, x.readErr
	}
	fresh := due && !x.isFirst() || again
	if current, err = x.loadTown(ctx, fresh); err == nil && due && !x.over {
		err = x.confirm(ctx, &current)
	}
	if x.readErr = err; err != nil {
		x.reread = time.Now().Add(x.reads.Next())
	} else if fresh {
		x.reread = time.Now().Add(x.dispatcher.config.Retry.Resend)
		x.reads.Reset()
	}
	return current, err
}

// loadTimeout bounds a load, which has a worker meanwhile.
const loadTimeout = 2 * time.Second

// loadTown makes the execution agree with its town, as this writer knows the town or, with fresh, as the
// log has it. It raises an alert if the command outlasts the drain timeout of a pause.
func (x *Execution) loadTown(ctx context.Context, fresh bool) (current machine.Town, err error) {
	d, load := x.dispatcher, x.dispatcher.stepper.Towns.Get
	if fresh {
		load = d.stepper.Log.Load
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	if current, err = load(ctx, x.TownID); err == nil {
		err = d.Adopt(ctx, x.TownID, current)
	}
	if err != nil || x.over {
		return current, err
	}
	if by := d.config.WorldPause.Effective(current); by != nil && !by.Draining(time.Now()) {
		paused := "the world"
		if current.Paused != nil {
			paused = x.TownID
		}
		timeout := time.Duration(by.DrainTimeoutMs) * time.Millisecond
		d.config.Alerts.RaiseOnce(alerts.DrainTimeout.Alert(alerts.Subject{RunID: by.SignalID},
			"{timeout}", timeout.String(), "{paused}", paused))
	}
	return current, nil
}

// follow goes on with the pending command as the log has it. If another writer has begun the next
// attempt, the present one ends, unless its outcome is that the command was applied.
func (x *Execution) follow(p *apply.Pending) {
	next := p.Attempt != x.Pending.Attempt
	if x.Pending = p; !next || x.outcome != nil && x.outcome.Applied {
		return
	}
	x.dispatcher.stepper.Towns.Forget(x.TownID)
	x.outcome = nil
	x.awaitAttempt()
}

// awaitAttempt waits until the pending attempt begins. NotBefore may be by another clock, so it does not make
// the pause longer.
func (x *Execution) awaitAttempt() {
	x.command, x.plugin, x.due = nil, nil, time.Time{}
	if number := x.Pending.Attempt; number > 1 {
		d := x.dispatcher
		x.due = time.Now().Add(min(x.Pending.NotBefore.Sub(d.stepper.Now()),
			d.config.Retry.BackoffAfter(number-1)))
	}
}

// postpone sends no request until a pause is over and the log can be read. By then there may be a
// pause. After Limits.Pause the client gets the pause as its answer.
func (x *Execution) postpone(now time.Time, why waiting.Reason, err error) {
	c := &x.dispatcher.config
	if x.waitingSince.IsZero() {
		x.waitingSince = now
	}
	waited := now.Sub(x.waitingSince)
	switch x.due = time.Now().Add(c.Retry.Resend); {
	case err != nil:
		x.due = x.reread
		if x.dispatcher.ctx.Err() == nil {
			c.Logger.Warn("a command waits: its town cannot be read, so it is not known whether it is "+
				"paused; will try again",
				"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", err)
		}
	case waited >= c.Limits.Pause:
		x.answer(machine.Answer{}, waiting.Paused(x.TownID, why, x.RunID, true))
	default:
		x.due = earlier(x.due, now.Add(c.Limits.Pause-waited))
	}
}

// pauseRun pauses the run of the command, or resumes it if by is nil, unless the log has that already. If
// the log does not answer, the next turn tries again.
func (x *Execution) pauseRun(ctx context.Context, by *messages.PausedBy) {
	if x.paused != nil && *x.paused == (by != nil) {
		return
	}
	d := x.dispatcher
	err := d.stepper.Log.Retry(ctx, func() error {
		tail, err := d.stepper.Log.Tail(ctx, x.RunID, x.Pending.Emitted)
		if err != nil {
			return err
		}
		// The town is read after the tail, since another writer may have resumed it.
		current, err := d.load(ctx, x.TownID, x.RunID)
		if err != nil {
			return err
		}
		by = d.config.WorldPause.Effective(current)
		in := d.stepper.Input(x.TownID, nil, &machine.RunPause{By: by})
		in.Tail = &tail
		_, err = d.stepper.Step(ctx, current, in)
		return err
	})
	if err == nil {
		x.paused = new(by != nil)
	} else if ctx.Err() == nil {
		d.config.Logger.Warn("a pause, or its end, is not recorded in a run yet; will try again",
			"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", err)
	}
}

// claim takes the command over from an earlier writer. It commits that a request may have arrived, unless
// Pending says that none has, and asks no game before that is stored. With that commit, a suspended earlier
// writer loses its races for the town.
func (x *Execution) claim(ctx context.Context, current machine.Town) (more bool) {
	if !x.dispatcher.stepper.Serves() {
		x.abandon(ctx)
		return false
	}
	unreached := x.Pending.CleanStop
	if !x.Pending.Reached {
		if x.step(ctx, current, &machine.RecordReach{MayBeReached: !unreached}) != nil {
			x.due = time.Now().Add(x.commits.Next())
			return false
		}
	}
	if x.unclaimed = false; !unreached {
		x.reach = apply.MayBeReached
	}
	x.awaitAttempt()
	return true
}

// step commits an event of the execution, and goes on with the pending command after it.
func (x *Execution) step(ctx context.Context, t machine.Town, event machine.Event) error {
	steps := x.dispatcher.stepper
	out, err := steps.Step(ctx, t, steps.Input(x.TownID, nil, event))
	if err == nil && out.After.Pending != nil {
		x.Pending = out.After.Pending
	}
	return err
}

// startAttempt begins the attempt. It lasts for Retry.Deadline from now on, also for a writer that has taken
// the command over.
func (x *Execution) startAttempt(ctx context.Context) {
	d, number := x.dispatcher, x.Pending.Attempt
	if number > 1 {
		x.record(ctx, true)
	}
	x.attemptStart = time.Now()
	x.command = apply.NewCommand(x.Handoff, x.RunID, x.before, x.Expected)
	x.command.LogicalAttemptID = number
	x.console.said = ""
	x.console.pauses.Reset()
	if x.via != apply.RCON {
		x.plugin = apply.NewPluginAttempt(x.command, x.attemptStart, &d.config.Retry, x.Pending.Reached)
		x.action = x.plugin.Due(x.attemptStart)
	}
}

// noteSent records that a request is sent: its reach is unknown until noteReach is called.
func (x *Execution) noteSent() {
	if x.reach == apply.Unreached {
		x.reach = apply.ReachUnknown
	}
}

// noteReach records the reach of the last request. It ignores ReachUnknown, and keeps a recorded
// MayBeReached.
func (x *Execution) noteReach(reach apply.Reach) {
	if reach != apply.ReachUnknown && x.reach != apply.MayBeReached {
		x.reach = reach
	}
}

// answer answers the client, once.
func (x *Execution) answer(answer machine.Answer, err error) {
	if client := x.client; client != nil {
		x.client = nil
		client.Answer(answer, err)
	}
}

// release ends the execution with its answer, or an error. The deferred cancellations find that
// the run has ended, or is left to the next writer.
func (x *Execution) release(ctx context.Context, gaveUp bool, answer machine.Answer, err error) {
	d := x.dispatcher
	x.over = true
	x.console.end()
	d.config.Router.Forget(x, gaveUp)
	d.Absences.NoteWait(x.TownID, messages.AbsentPlugin{})
	d.remove(x)
	x.answer(answer, err)
	d.config.Queue.WakeLead(x.TownID)
	x.decideDeferred(ctx)
}

// abandon leaves the command to the next writer. That may be this one, if its lease only seemed lost, or if
// a turn panicked.
func (x *Execution) abandon(ctx context.Context) {
	if !x.over {
		x.recordUnreached(ctx)
		x.release(ctx, false, machine.Answer{}, waiting.ErrInProgress)
		x.dispatcher.adoptLater(x)
	}
}

// leaveTimeout bounds the time in which a stopping writer stores that no request for a command has arrived.
const leaveTimeout = 2 * time.Second

// recordUnreached stores that this writer stops, and that no request for the command has arrived. If it
// cannot store this, the next writer has to assume that a request may have arrived.
func (x *Execution) recordUnreached(ctx context.Context) {
	if x.unclaimed || x.Pending.Reached || x.reach != apply.Unreached {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	defer context.AfterFunc(x.dispatcher.drainCtx, cancel)()
	current, err := x.dispatcher.stepper.Log.Load(ctx, x.TownID)
	if p := current.Pending; err == nil && p != nil && p.Run.RunID == x.RunID &&
		p.Attempt == x.Pending.Attempt && !p.Reached {
		err = x.step(ctx, current, &machine.RecordReach{CleanStop: true})
	}
	if err != nil {
		x.dispatcher.config.Logger.Warn("it is not recorded that no request for a command has arrived: "+
			"the next writer assumes that one may have", "town", x.TownID, "run", x.RunID, "error", err)
	}
}
