// Package game works on the handoffs that are accepted and whose commands are applied outside
// the engine: it asks the plugin or the console of the town, stores each attempt and how the last
// one ended, pauses the runs with their towns, and cancels those that no game has.
//
//	Ensure ── attempt ──> game ── outcome ──> the town's turn ── one record ──> commit log
//
// A pending command stands in the record of its town (apply.Pending), so the next writer can go on
// with it. Package apply decides the next action of an attempt; package inhand makes the run's events.
package game

import (
	"context"
	"log/slog"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/presence"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// pollPause is the pause between two looks at the condition that a command waits for.
const pollPause = 250 * time.Millisecond

// Config configures a Worker. All but RCON and OnAttempt is required.
type Config struct {
	World string
	// Policy is how plugins and consoles are asked.
	Policy apply.Policy
	// RCON applies the commands of towns that are bound to it; nil if none may be.
	RCON apply.Applier
	// PauseWait is how long a client waits in a pause, AbsentWait for a plugin that is away, before
	// it gets that answer, and Timeout how long one commit may take.
	PauseWait, AbsentWait, Timeout time.Duration

	Towns      *commitlog.Towns
	WorldPause *signals.WorldPause
	Absent     *presence.Absences
	// EndOf returns the record with which a run ended, nil if the log does not keep it.
	EndOf func(ctx context.Context, runID string) (*commitlog.Record, error)
	// TownOf returns the token of the town of a run.
	TownOf func(ctx context.Context, runID string) (string, error)

	// Serves reports whether this server is the writer of the world still.
	Serves func() bool
	// Concluded is called with the answer that a run ended with.
	Concluded func(*machine.Answer)
	// Raise raises an alert that belongs to a run, once, and RaiseStored does so before the
	// event that it reports; Environment makes the alerts.
	Raise       func(runevents.Alert)
	RaiseStored func(context.Context, runevents.Alert) error
	Environment alerts.Environment
	// OnAttempt is called with how each attempt ended, and how long it took; may be nil.
	OnAttempt func(by apply.Binding, ended apply.Result, took time.Duration)

	// Now and Draw are members of worldengine.Config.
	Now    func() time.Time
	Draw   func(below time.Duration) time.Duration
	Logger *slog.Logger
}

// Queue gives work its turn at a town.
type Queue interface {
	// SubmitFirst gives run its turn before all that waits for the town.
	SubmitFirst(townID string, run func(context.Context)) error
	// Answering tells the queue that the turn of the town ends with an answer.
	Answering(townID string)
	// Unpark has what waits for the town go on.
	Unpark(townID string)
	// Waiting returns how many requests wait for the town.
	Waiting(townID string) int
}

// Worker works on the pending commands of a world. It is safe for concurrent use.
type Worker struct {
	config       Config
	steps        *stepper.Stepper
	queue        Queue
	plugins      ReplyRouter
	applications applications
	// unread lets one of the warnings through that a command waits since its town cannot be read.
	unread backoff.Seldom
	// ctx ends the requests to games.
	ctx  context.Context
	stop context.CancelFunc
}

// New returns a worker that Start starts.
func New(steps *stepper.Stepper, config Config) *Worker {
	return &Worker{config: config, steps: steps}
}

// Start has a worker take commands, until ctx is done. plugins carries its requests to plugins.
func (w *Worker) Start(ctx context.Context, queue Queue, plugins ReplyRouter) {
	w.ctx, w.stop = context.WithCancel(ctx)
	w.queue, w.plugins = queue, plugins
}

// UnusedAnswers returns what takes the answers of plugins that are late, and that are more than
// requests.
func (w *Worker) UnusedAnswers() UnusedAnswers {
	return UnusedAnswers{Late: w.lateAnswer, Double: w.doubleAnswer}
}

// Refuse takes no more commands.
func (w *Worker) Refuse() { w.applications.close() }

// Stop takes no more commands, and leaves those in hand pending unless their answers come within
// moments. ctx bounds the wait.
func (w *Worker) Stop(ctx context.Context) { w.applications.stop(ctx, w.stop) }

// InProgress returns an *apply.InProgressError if the command of the key is being applied to its
// town: the answer to another handoff with the key. Otherwise it returns nil.
func (w *Worker) InProgress(townID, key string) error {
	runID := w.applications.runOf(townID, key)
	if runID == "" {
		return nil
	}
	return &apply.InProgressError{
		RunID: runID, TownID: townID, AbsentSince: w.config.Absent.Since(townID),
	}
}

// Absent returns why a request that has waited behind the command of the run before, which is
// pending in its town, is not to wait any longer: the command waits for a plugin that is away. It
// returns nil otherwise. runID is the run of the request.
func (w *Worker) Absent(townID, before, runID string) error {
	a := w.applications.of(townID, before)
	if since := w.config.Absent.Since(townID); a != nil && a.away.Load() != nil && !since.IsZero() {
		return &waiting.AbsentError{TownID: townID, Since: since, RunID: runID, Before: before}
	}
	return nil
}

// Wait is a command that waits for a plugin that is away.
type Wait struct {
	RunID   string
	Attempt int64     // logical, from 1
	Said    string    // the last answer of the game, or the end of the attempt before
	Next    time.Time // when the game is asked again
}

// noteWait notes whether a waits for a plugin.
func (w *Worker) noteWait(a *application, attempt *PluginAttempt) {
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
func (w *Worker) waits(a *application, said string, pause time.Duration) {
	a.away.Store(&Wait{RunID: a.runID, Attempt: a.Pending.Attempt, Said: said,
		Next: w.config.Now().Add(pause)})
}

// Wait returns the command that this writer has in hand for a town without a plugin; with RunID alone
// between two requests, and zero if there is none.
func (w *Worker) Wait(townID string) Wait {
	a := w.applications.of(townID, "")
	if a == nil {
		return Wait{}
	}
	if wait := a.away.Load(); wait != nil {
		return *wait
	}
	return Wait{RunID: a.runID}
}

// Count returns how many commands this worker has in hand.
func (w *Worker) Count() int { return w.applications.count() }
