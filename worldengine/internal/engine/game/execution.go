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
)

// Answerer gets the answer to a handoff.
type Answerer = queue.Answerer[machine.Answer]

// Execution is a pending command in this writer's hands: the leading task of its town's queue. In its
// turns it asks the plugin or the console to apply the command, and commits the outcome. Replies come
// from outside; all else is the town's turn's alone.
type Execution struct {
	alerts.About // the town, the handoff, the run
	apply.DecodedPending
	dispatcher *Dispatcher
	binding    apply.Binding
	before     town.State
	client     Answerer // nil once it is answered, and if an earlier writer committed the handoff
	// answerBy is when the client is answered if the game is absent then; zero if the command does not
	// wait for an absent game.
	answerBy time.Time

	replyToken string // of the reply subject
	replies    chan Reply

	phase phase
	// due is when the execution goes on: the attempt begins, a request is sent, a commit is repeated.
	due time.Time
	// waitingSince is when the execution began to wait for the end of a pause, or for the log; zero if it
	// does not.
	waitingSince time.Time
	reads        townReads
	// paused reports whether the run is paused in the log; nil if that is not known.
	paused *bool

	// reach reports whether a request may have arrived, as far as is known. gameAbsent reports that the last
	// request reached nobody.
	reach      apply.Reach
	gameAbsent bool
	attempt    attempt
	console    consoleWait
	// result is the end of the attempt, if the execution is committing; commitRetries are the pauses between
	// its tries.
	result        *apply.AttemptResult
	commitRetries backoff.Backoff

	// deferredCancels are the cancellations that wait until the reach is known.
	deferredCancels []*cancellation
	// unconfirmedCancel is set if a commit of a cancellation got no answer: it may be stored already, or be
	// stored later.
	unconfirmedCancel bool
}

// phase says how far an execution has come. From committing it comes back to scheduled if there is another attempt.
type phase int

const (
	unclaimed  phase = iota // an earlier writer accepted the command, and this one has still to claim it
	scheduled               // the next attempt has not begun
	asking                  // the game is asked
	committing              // the attempt has ended, and its result is to be committed
	ended
)

// attempt is an attempt to have the game apply the command; zero before it begins.
type attempt struct {
	command *apply.Command // the request
	start   time.Time
	// plugin decides about the requests to a plugin, and action is the next one; nil for a console, and
	// after the attempt.
	plugin *apply.PluginAttempt
	action apply.PluginAction
}

// maxReplies bounds the replies that wait.
const maxReplies = 64

// acceptedExecution returns the execution of a command that this writer has just committed. client gets the answer.
func (d *Dispatcher) acceptedExecution(
	townID string, current machine.Town, client Answerer,
) (*Execution, error) {
	x, err := d.newExecution(townID, current, scheduled)
	if err == nil {
		x.client, x.paused = client, new(bool) // commands are accepted in no pause
	}
	return x, err
}

// adoptedExecution returns the execution of a command that an earlier writer, or an earlier execution, has left.
func (d *Dispatcher) adoptedExecution(townID string, current machine.Town) (*Execution, error) {
	return d.newExecution(townID, current, unclaimed)
}

// newExecution returns an execution in a phase, in which nobody waits for the answer.
func (d *Dispatcher) newExecution(
	townID string, current machine.Town, phase phase,
) (*Execution, error) {
	read, err := current.Pending.Decode()
	if err != nil {
		return nil, err
	}
	run := current.Pending.Run
	x := emptyExecution(d, alerts.About{
		TownID: townID, HandoffID: read.Handoff.HandoffID, RunID: run.RunID, Trace: run.Trace,
	})
	x.DecodedPending, x.binding, x.before, x.phase = read, current.Pending.Binding, current.State, phase
	if d.config.Retry.Absence == apply.AbsenceWait {
		x.answerBy = time.Now().Add(d.config.Limits.Absence)
	}
	x.scheduleAttempt()
	return x, nil
}

// emptyExecution returns an execution without a command.
func emptyExecution(d *Dispatcher, about alerts.About) *Execution {
	draw := d.stepper.Log.Jitter
	return &Execution{
		About: about, dispatcher: d, replyToken: nuid.Next(), replies: make(chan Reply, maxReplies),
		reads: townReads{
			next:   time.Now().Add(d.config.Retry.RereadInterval()),
			failed: backoff.Backoff{Min: retryInterval, Max: maxCommitInterval, Jitter: draw},
		},
		commitRetries: backoff.Backoff{Min: retryInterval, Max: maxCommitInterval, Jitter: draw},
		console: consoleWait{
			retries: backoff.Backoff{Min: retryInterval, Max: d.config.Retry.MaxLoginInterval(), Jitter: draw},
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
	if x.phase == ended {
		return next
	}
	if next = x.due; x.console.inFlight {
		next = queue.UntilWoken
	}
	if x.phase != committing { // another server may pause the town
		next = earliest(next, x.reads.next)
	}
	if x.mayReportAbsence() && time.Now().Before(x.answerBy) {
		next = earliest(next, x.answerBy)
	}
	if len(x.deferredCancels) > 0 {
		next = earliest(next, x.deferredCancels[0].until)
	}
	return next
}

// mayReportAbsence reports whether the client may be answered that the game is absent. In a pause it is answered that
// the town, or the world, is paused.
func (x *Execution) mayReportAbsence() bool {
	return x.gameAbsent && (x.waitingSince.IsZero() || x.reads.err != nil)
}

func earliest(a, b time.Time) time.Time {
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
	now, number := time.Now(), x.Pending.Attempt
	isDue := !now.Before(x.due) || !x.waitingSince.IsZero()
	switch {
	case x.phase == ended:
		return false
	case x.phase == committing:
		return isDue && x.commit(ctx)
	case x.dispatcher.ctx.Err() != nil:
		return false
	}
	if x.mayReportAbsence() && !x.answerBy.IsZero() && !now.Before(x.answerBy) {
		since := x.dispatcher.Absences.StartOf(x.TownID)
		x.answer(machine.Answer{}, waiting.GameAbsent(x.TownID, x.binding, since, x.RunID, ""))
	}
	isDue = isDue && !x.console.inFlight
	if isDue && x.attempt.plugin != nil && !x.attempt.action.Send {
		x.pluginTimedOut(ctx)
		return true
	}
	current, err := x.followTown(ctx, isDue)
	switch {
	case x.phase == ended || !isDue:
		return false
	case x.Pending.Attempt != number: // another writer has begun it
		return true
	}
	if why, waits := x.reasonToWait(current, err); waits {
		x.postpone(now, why, err)
		return false
	}
	x.endWait(now)
	switch x.phase {
	case unclaimed:
		return x.claim(ctx, current)
	case scheduled:
		x.startAttempt(ctx)
	}
	if x.binding == apply.RCON {
		return x.askConsole()
	}
	return x.askPlugin(ctx)
}

// reasonToWait returns why no request is sent now, if that is so: the town is paused, or cannot be read. A plugin
// that may be working on the command is asked even then.
func (x *Execution) reasonToWait(current machine.Town, readErr error) (why waiting.Reason, waits bool) {
	by, plugin := x.dispatcher.config.WorldPause.Effective(current), x.attempt.plugin
	inHand := plugin != nil && plugin.IsInHand()
	waits = readErr != nil && !(inHand && current.Seq == 0) || by != nil && !inHand
	return waiting.Reason{Kind: waiting.EndOfPause, Pause: by, World: current.Paused == nil}, waits
}

// endWait goes on after a wait, which does not count as time of the attempt.
func (x *Execution) endWait(now time.Time) {
	if plugin := x.attempt.plugin; plugin != nil && !x.waitingSince.IsZero() {
		plugin.Prolong(now.Sub(x.waitingSince))
	}
	x.waitingSince = time.Time{}
}

// scheduleAttempt sets when the pending attempt begins; an unclaimed command is claimed then. That is never later than
// after this server's backoff: NotBefore may be by another clock.
func (x *Execution) scheduleAttempt() {
	x.attempt, x.due = attempt{start: x.attempt.start}, time.Time{} // a console may still answer the former one
	if x.result = nil; x.phase != unclaimed {
		x.phase = scheduled
	}
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
	switch x.due = time.Now().Add(c.Retry.RecheckInterval()); {
	case err != nil:
		x.due = x.reads.next
		if x.dispatcher.ctx.Err() == nil {
			c.Logger.Warn("a command waits: its town cannot be read, so it is not known whether it is "+
				"paused; will try again",
				"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", err)
		}
	case waited >= c.Limits.Pause:
		x.answer(machine.Answer{}, waiting.Paused(x.TownID, why, x.RunID, true))
	default:
		x.due = earliest(x.due, now.Add(c.Limits.Pause-waited))
	}
}

// claim takes the command over from an earlier writer. It commits that a request may have arrived, unless
// Pending says that none has, and asks no game before that is stored. With that commit, a suspended earlier
// writer loses its races for the town.
func (x *Execution) claim(ctx context.Context, current machine.Town) (more bool) {
	if !x.dispatcher.stepper.IsWriter() {
		x.abandon(ctx)
		return false
	}
	unreached := x.Pending.StoppedUnreached
	if !x.Pending.MayHaveReached {
		if x.step(ctx, current, &machine.RecordReach{MayHaveReached: !unreached}) != nil {
			x.due = time.Now().Add(x.commitRetries.Next())
			return false
		}
	}
	if x.phase = scheduled; !unreached {
		x.reach = apply.MayBeReached
	}
	x.scheduleAttempt()
	return true
}

// step commits an event of the execution, and goes on with the pending command after it.
func (x *Execution) step(ctx context.Context, t machine.Town, event machine.Event) error {
	steps := x.dispatcher.stepper
	out, err := steps.Step(ctx, t, steps.Input(x.TownID, nil, event))
	if err == nil && out.NextTown.Pending != nil {
		x.Pending = out.NextTown.Pending
	}
	return err
}

// startAttempt begins the attempt. It lasts for Retry.Deadline from now on, also for a writer that has taken
// the command over.
func (x *Execution) startAttempt(ctx context.Context) {
	d, number := x.dispatcher, x.Pending.Attempt
	if number > 1 {
		x.recordAttempt(ctx, true)
	}
	a := attempt{command: apply.NewCommand(x.Handoff, x.RunID, x.before, x.Expected), start: time.Now()}
	a.command.LogicalAttemptID = number
	x.console.said = ""
	x.console.retries.Reset()
	if x.binding != apply.RCON {
		a.plugin = apply.NewPluginAttempt(a.command, a.start, &d.config.Retry, x.Pending.MayHaveReached)
		a.action = a.plugin.Due(a.start)
	}
	x.attempt, x.phase = a, asking
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
