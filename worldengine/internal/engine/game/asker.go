package game

import (
	"context"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/messages"
)

// asker asks the game of an execution to apply the command: a plugin, or a console.
type asker interface {
	// start starts an attempt, and sends nothing.
	start(command *apply.Command, at time.Time)
	// ask sends the request.
	ask()
	// handleReply handles a reply to a request, and handleSilence that none has come in time.
	handleReply(ctx context.Context, r Reply)
	handleSilence(ctx context.Context)
	// progress returns how far the request is, and whether a plugin may be working on it.
	progress() (sent request, mayBeWorking bool)
	// prolong adds the time of a wait, in which nothing was sent, to the attempt.
	prolong(wait time.Duration)
	// close ends the request that a console has.
	close()
}

// askers make the asker of an execution, for each binding that is not built in.
var askers = map[apply.Binding]func(*Execution) asker{apply.Plugin: newPluginAsker, apply.RCON: newConsoleAsker}

// sendRequest asks the game, unless the lease was lost after next saw it, as while the start of the attempt was
// committed. Then next decides again.
func (x *Execution) sendRequest() {
	if x.dispatcher.stepper.HasLease() {
		x.game.ask()
	}
}

// noteGameAbsent notes that the last request found no game, and that the game is asked again after
// next. With over, the attempt has ended.
func (x *Execution) noteGameAbsent(ctx context.Context, reason string, next time.Duration, over bool) {
	d := x.dispatcher
	x.absence.isAbsent = true
	d.Absences.NoteAbsent(ctx, x.About, 1+d.config.Queue.CountWaiting(x.TownID), over)
	d.Absences.NoteWait(x.TownID, messages.AbsentPlugin{Attempt: x.Pending.Attempt, Said: reason,
		NextAt: runevents.Timestamp(d.stepper.Now().Add(next))})
	d.config.Queue.Wake(x.TownID) // requests that have waited long enough are answered now
}

// noteGamePresent notes that the last request found a game.
func (x *Execution) noteGamePresent(ctx context.Context) {
	x.absence.isAbsent = false
	x.dispatcher.Absences.NotePresent(ctx, x.About)
}

// finishAttempt ends the attempt with an outcome, which is committed next.
func (x *Execution) finishAttempt(result apply.AttemptResult) {
	d := x.dispatcher
	result.Attempt, result.At = x.Pending.Attempt, d.stepper.Now()
	x.phase, x.result, x.due, x.absence.isAbsent = committing, &result, time.Time{}, false
	x.commitRetries.Reset()
	d.Absences.ClearWait(x.TownID)
	if d.config.Metrics != nil {
		d.config.Metrics.Attempt(x.binding, result, time.Since(x.attemptStart))
	}
}
