// Package game has the commands of accepted handoffs applied by games: it asks the town's plugin or
// console, stores each attempt and the outcome, pauses the runs with their towns, and cancels those
// that no game has.
//
//	Ensure ── attempt ──> game ── outcome ──> the town's turn ── one record ──> commit log
//
// A pending command is in the record of its town (apply.Pending), so the next writer can go on with
// it. PluginAttempt decides the next action of an attempt, and package machine the effect of its outcome.
package game

import (
	"context"
	"log/slog"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/wire"
)

// pollPause is the pause between two looks at a command's wait condition.
const pollPause = 250 * time.Millisecond

// Config configures a Worker. All but RCON and Metrics is required.
type Config struct {
	// Policy is the patience with plugins and consoles.
	Policy apply.Policy
	// RCON applies the commands of towns that are bound to it; nil if none may be.
	RCON apply.Console
	// PauseWait bounds a client's wait in a pause, AbsentWait its wait for a game that is away; then
	// it gets that answer. Timeout bounds one commit.
	PauseWait, AbsentWait, Timeout time.Duration

	Towns      *commitlog.Towns
	Index      *index.Index
	WorldPause *WorldPause
	Ends       *runs.Ends
	Queue      Queue
	Router     Router

	Alerts  Alerts
	Metrics Metrics
	Logger  *slog.Logger
}

// Alerts raises alerts. It is an *alerts.Alerts.
type Alerts interface {
	// Raise raises an alert; RaiseOnce does so if its run has none of the code yet, and RaiseStored
	// before the event that it reports.
	Raise(alert runevents.Alert)
	RaiseOnce(alert runevents.Alert)
	RaiseStored(ctx context.Context, alert runevents.Alert) error
}

// Metrics counts attempts.
type Metrics interface {
	// Attempt counts an attempt of a binding to apply a command, its end and its duration. It must
	// not block and must be safe for concurrent use.
	Attempt(by apply.Binding, ended apply.Result, took time.Duration)
}

// Queue gives work its turn at a town.
type Queue interface {
	// SubmitFirst gives run its turn before all waiting requests of the town.
	SubmitFirst(townID string, run func(context.Context)) error
	// Answering marks that the town's turn ends with an answer.
	Answering(townID string)
	// Unpark lets the town's waiting requests go on.
	Unpark(townID string)
	// Waiting returns the number of requests that wait for the town.
	Waiting(townID string) int
}

// Worker works on the pending commands of a world. It is safe for concurrent use.
type Worker struct {
	Absences     *Absences
	config       Config
	steps        *stepper.Stepper
	applications applications
	// unread limits the warnings that a command waits because its town is unreadable.
	unread backoff.Seldom
	// ctx ends the requests to games.
	ctx  context.Context
	stop context.CancelFunc
}

// New returns a worker that works until ctx is done.
func New(ctx context.Context, steps *stepper.Stepper, config Config) *Worker {
	w := &Worker{Absences: newAbsences(steps.Now, &config), config: config, steps: steps}
	w.ctx, w.stop = context.WithCancel(ctx)
	return w
}

// Refuse takes no more commands.
func (w *Worker) Refuse() { w.applications.close() }

// Stop refuses new commands, and leaves those in hand pending unless their answers come within
// moments. ctx bounds the wait.
func (w *Worker) Stop(ctx context.Context) { w.applications.stop(ctx, w.stop) }

// InProgress returns the error of InProgress if the key's command is being applied to its town, else
// nil. It answers another handoff with the key.
func (w *Worker) InProgress(townID, key string) error {
	a := w.applications.of(townID, "")
	if a == nil || a.Handoff.IdempotencyKey != key {
		return nil
	}
	return InProgress(a.RunID, townID, a.stored.Via, w.Absences.Since(townID))
}

// Absent returns why a request behind the pending command of the run before should wait no longer:
// that command waits for a game that is away. It returns nil otherwise. runID is the request's run.
func (w *Worker) Absent(townID, before, runID string) error {
	a := w.applications.of(townID, before)
	if since := w.Absences.Since(townID); a != nil && a.away.Load() != nil && !since.IsZero() {
		return Absent(townID, a.stored.Via, since, runID, before)
	}
	return nil
}

// Wait is a command that waits for a game that is away.
type Wait struct {
	RunID   string
	Attempt int64     // logical, from 1
	Said    string    // the last answer of the game, or the end of the attempt before
	Next    time.Time // when the game is asked again
}

// noteWait notes whether a waits for a plugin.
func (w *Worker) noteWait(a *Application, attempt *PluginAttempt) {
	if !attempt.Away() {
		a.away.Store(nil)
		return
	}
	said := "No plugin is subscribed for the town."
	if attempt.last != nil {
		said = wire.Sentence(attempt.last)
	} else if last := a.Pending.Last; last != nil {
		said = last.Message
	}
	w.waits(a, said, time.Until(attempt.next))
}

// waits notes that a waits for a game that is away, and is asked again after a pause.
func (w *Worker) waits(a *Application, said string, pause time.Duration) {
	a.away.Store(&Wait{RunID: a.RunID, Attempt: a.Pending.Attempt, Said: said,
		Next: w.steps.Now().Add(pause)})
}

// Wait returns this writer's command for a town without a game; between two requests with RunID
// alone, and zero if there is none.
func (w *Worker) Wait(townID string) Wait {
	a := w.applications.of(townID, "")
	if a == nil {
		return Wait{}
	}
	if wait := a.away.Load(); wait != nil {
		return *wait
	}
	return Wait{RunID: a.RunID}
}

// Count returns the number of commands in hand.
func (w *Worker) Count() int { return w.applications.count() }
