package game

import (
	"context"
	"errors"
	"fmt"
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
// turns it asks the plugin or the console to apply the command, and commits the outcome: state.next decides about
// each action. Replies come from outside; all else is the town's turn's alone.
type Execution struct {
	alerts.About // the town, the handoff, the run
	apply.DecodedPending
	dispatcher *Dispatcher
	binding    apply.Binding
	before     town.State
	answerer   Answerer // nil once it is answered, and if an earlier writer committed the handoff

	replyToken string // of the reply subject
	replies    chan Reply

	state
	game         asker
	attemptStart time.Time
	// result is the end of the attempt, if the execution is committing; commitRetries are the pauses between
	// the tries to commit it, or the claim.
	result        *apply.AttemptResult
	commitRetries backoff.Backoff
	// paused reports whether the run is paused in the log; nil if that is not known.
	paused *bool
}

// maxReplies bounds the replies that wait.
const maxReplies = 64

// acceptedExecution returns the execution of a command that this writer has just committed. answerer gets the answer.
func (d *Dispatcher) acceptedExecution(
	townID string, current machine.Town, answerer Answerer,
) (*Execution, error) {
	x, err := d.newExecution(townID, current, scheduled)
	if err == nil {
		x.answerer, x.paused = answerer, new(bool) // commands are accepted in no pause
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
	run, binding := current.Pending.Run, current.Pending.Binding
	if askers[binding] == nil {
		return nil, fmt.Errorf("game: this server cannot have %q apply the command of run %s", binding, run.RunID)
	}
	x := emptyExecution(d, alerts.About{
		TownID: townID, HandoffID: read.Handoff.HandoffID, RunID: run.RunID, Trace: run.Trace,
	}, binding)
	x.DecodedPending, x.before, x.phase = read, current.State, phase
	if d.config.Retry.Absence == apply.AbsenceWait {
		x.absence.answerBy = time.Now().Add(d.config.Limits.Absence)
	}
	x.scheduleAttempt()
	return x, nil
}

// emptyExecution returns an execution without a command.
func emptyExecution(d *Dispatcher, about alerts.About, binding apply.Binding) *Execution {
	draw, retry := d.stepper.Log.Jitter, &d.config.Retry
	x := &Execution{
		About: about, dispatcher: d, binding: binding, replyToken: nuid.Next(), replies: make(chan Reply, maxReplies),
		state: state{
			reads: townReads{
				next:   time.Now().Add(retry.RereadInterval()),
				failed: backoff.Backoff{Min: retryInterval, Max: maxCommitInterval, Jitter: draw},
			},
			wait: townWait{timeout: d.config.Limits.Pause, recheckInterval: retry.RecheckInterval()},
		},
		commitRetries: backoff.Backoff{Min: retryInterval, Max: maxCommitInterval, Jitter: draw},
	}
	x.game = askers[binding](x)
	return x
}

// Deliver gives the execution a reply, or drops it if maxReplies wait.
func (x *Execution) Deliver(r Reply) {
	select {
	case x.replies <- r:
		x.dispatcher.config.Queue.WakeLead(x.TownID)
	default: // the request is sent again
	}
}

// RunTurn carries out the actions that are due. It returns the time of the next turn; zero if the execution is over.
func (x *Execution) RunTurn(ctx context.Context, _ queue.Turn) (next time.Time) {
	ctx, cancel := context.WithTimeout(ctx, x.dispatcher.config.Timeout)
	defer cancel()
	var view townView
	for {
		f := x.facts(view)
		switch a := x.next(&f); a.kind {
		case endTurn:
			return a.until
		case waitForTown:
			x.startWait(f.now)
			return a.until
		case endWait:
			x.endWait(f.now)
			continue // the town is as it was read
		case readTown:
			view = x.readTown(ctx, a.fresh)
			continue
		case reportPause:
			x.answer(machine.Answer{}, waiting.Paused(x.TownID, view.pause, x.RunID, true))
			continue
		case reportAbsence:
			since := x.dispatcher.Absences.StartOf(x.TownID)
			x.answer(machine.Answer{}, waiting.GameAbsent(x.TownID, x.binding, since, x.RunID, ""))
		case handleReply:
			x.game.handleReply(ctx, <-x.replies)
		case handleSilence:
			x.game.handleSilence(ctx)
		case decideCancels:
			x.decideDeferred(ctx)
		case outrunCancel:
			x.outrunCancel(ctx, view.Town)
		case claimCommand:
			x.claim(ctx, view.Town)
		case startAttempt:
			x.startAttempt(ctx)
			x.sendRequest()
		case sendRequest:
			x.sendRequest()
		case commitResult:
			x.commit(ctx)
		case abandonCommand:
			x.abandon(ctx)
		}
		view.isOld = true
	}
}

// facts finds out the facts that decide with the state about the next action.
func (x *Execution) facts(view townView) facts {
	f := facts{
		now: time.Now(), isStopping: x.dispatcher.ctx.Err() != nil, hasLease: x.dispatcher.stepper.HasLease(),
		hasReply: len(x.replies) > 0, hasClient: x.answerer != nil, town: view,
		isFirst: x.phase == scheduled && x.Pending.Attempt == 1 && !x.binding.Spec().SingleRequest,
	}
	f.request, f.mayBeWorking = x.game.progress()
	return f
}

// End leaves the command to the next writer.
func (x *Execution) End(ctx context.Context, err error) {
	if errors.Is(err, queue.ErrPanicked) {
		x.reach = apply.MayHaveReached
	}
	x.abandon(ctx)
}

// scheduleAttempt sets when the pending attempt begins; an unclaimed command is claimed then. That is never later than
// after this server's backoff: NotBefore may be by another clock.
func (x *Execution) scheduleAttempt() {
	x.due, x.result = time.Time{}, nil
	if x.phase != unclaimed {
		x.phase = scheduled
	}
	if number := x.Pending.Attempt; number > 1 {
		d := x.dispatcher
		x.due = time.Now().Add(min(x.Pending.NotBefore.Sub(d.stepper.Now()),
			d.config.Retry.BackoffAfter(number-1)))
	}
}

// claim takes the command over from an earlier writer. It commits that a request may have arrived, unless
// Pending says that none has, and asks no game before that is stored. With that commit, a suspended earlier
// writer loses its races for the town.
func (x *Execution) claim(ctx context.Context, current machine.Town) {
	unreached := x.Pending.StoppedUnreached
	if !x.Pending.MayHaveReached {
		if x.commitEvent(ctx, current, &machine.RecordReach{MayHaveReached: !unreached}) != nil {
			x.due = time.Now().Add(x.commitRetries.Next())
			return
		}
	}
	if x.phase = scheduled; !unreached {
		x.reach = apply.MayHaveReached
	}
	x.scheduleAttempt()
}

// commitEvent commits an event of the execution, and goes on with the pending command after it.
func (x *Execution) commitEvent(ctx context.Context, t machine.Town, event machine.Event) error {
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
	number := x.Pending.Attempt
	if number > 1 {
		x.recordAttempt(ctx, true)
	}
	command := apply.NewCommand(x.Handoff, x.RunID, x.before, x.Expected)
	command.LogicalAttemptID = number
	x.phase, x.attemptStart = asking, time.Now()
	x.game.start(command, x.attemptStart)
}

// answer answers the client, once.
func (x *Execution) answer(answer machine.Answer, err error) {
	if answerer := x.answerer; answerer != nil {
		x.answerer = nil
		answerer.Answer(answer, err)
	}
}
