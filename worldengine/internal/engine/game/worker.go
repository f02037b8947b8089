// Package game applies the commands of accepted handoffs through games. It asks the town's plugin
// or console, stores each attempt and the outcome, pauses runs with their towns, and cancels runs
// whose commands no game has received.
//
//	Ensure ── attempt ──> game ── outcome ──> the town's turn ── one record ──> commit log
//
// A pending command is in the record of its town (apply.Pending), so the next writer can go on with
// it. pluginAttempt decides the next action of an attempt, and package machine the effect of its outcome.
package game

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
)

// pollPause is the pause between two looks at a condition that a command waits for.
const pollPause = 250 * time.Millisecond

// Config configures a Worker. All members but RCON and Metrics are required.
type Config struct {
	// Policy bounds the attempts, and the waits for plugins and consoles.
	Policy apply.Policy
	// RCON applies the commands of towns that are bound to it; nil if there is no console.
	RCON apply.Console
	// PauseWait and AbsentWait bound a client's wait for the end of a pause, and for an absent game;
	// then the client gets a *WaitError. Timeout bounds one commit.
	PauseWait, AbsentWait, Timeout time.Duration

	WorldPause *WorldPause
	Ends       *runs.Ends
	Queue      *queue.Queue
	Router     Router

	Alerts  Alerts
	Metrics Metrics
	Logger  *slog.Logger
}

// Alerts raises alerts. It is an *alerts.Alerts.
type Alerts interface {
	// Raise raises an alert. RaiseOnce raises it only if its run has none with the same code yet.
	// RaiseStored is RaiseOnce, but returns after the alert is stored.
	Raise(alert runevents.Alert)
	RaiseOnce(alert runevents.Alert)
	RaiseStored(ctx context.Context, alert runevents.Alert) error
	// All returns the stored alerts, the oldest first.
	All(ctx context.Context) ([]messages.Alert, error)
}

// Metrics counts attempts.
type Metrics interface {
	// Attempt counts an attempt to apply a command, by its binding, end and duration. It must not
	// block and must be safe for concurrent use.
	Attempt(by apply.Binding, ended apply.Result, took time.Duration)
}

// Worker works on the pending commands of a world. It is safe for concurrent use.
type Worker struct {
	Absences *Absences
	config   Config
	steps    *stepper.Stepper
	// ctx ends the requests to games.
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	towns  map[string]*Application // at most one for a town
	closed bool                    // no more commands are accepted
}

// New returns a worker that works until ctx is done.
func New(ctx context.Context, steps *stepper.Stepper, config Config) *Worker {
	w := &Worker{Absences: newAbsences(steps.Now, &config), config: config, steps: steps,
		towns: map[string]*Application{}}
	w.ctx, w.stop = context.WithCancel(ctx)
	config.WorldPause.wakes = w.wakeAll
	return w
}

// wakeAll wakes all applications.
func (w *Worker) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.towns {
		a.wake()
	}
}

// of returns the application of a run in a town, or of any run if runID is "". It returns nil if
// there is none.
func (w *Worker) of(townID, runID string) *Application {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.towns[townID]; a != nil && (runID == "" || a.RunID == runID) {
		return a
	}
	return nil
}

// start starts an application, in place of one that is over. It returns false if the worker is
// closed.
func (w *Worker) start(a *Application) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.towns[a.TownID] = a
		w.work.Go(func() {
			defer close(a.ended)
			w.run(w.ctx, a)
		})
	}
	return !w.closed
}

// remove removes an application, unless another one has its place.
func (w *Worker) remove(a *Application) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.towns[a.TownID] == a {
		delete(w.towns, a.TownID)
	}
}

// Count returns the number of commands that are being applied.
func (w *Worker) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.towns)
}

// Refuse makes the worker refuse new commands.
func (w *Worker) Refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// stopGrace is how long Stop waits for games that are about to answer.
const stopGrace = 2 * time.Second

// Stop refuses new commands, and leaves those in hand pending unless their answers come within
// moments: the next writer of the world goes on with them. ctx bounds the wait.
func (w *Worker) Stop(ctx context.Context) {
	w.Refuse()
	grace, done := context.WithTimeout(ctx, stopGrace)
	defer done()
	context.AfterFunc(grace, w.stop)
	w.work.Wait()
	w.stop()
}

// InProgress returns the error of a handoff with a key if a command with this key is being applied, the
// handoff's or another one's; else nil.
func (w *Worker) InProgress(townID, key, handoffID string) error {
	a := w.of(townID, "")
	switch {
	case a == nil || a.Handoff.IdempotencyKey != key:
		return nil
	case a.Handoff.HandoffID != handoffID:
		return KeyInUse(a.Handoff.HandoffID)
	}
	return InProgress(a.RunID, townID, a.stored.Via, w.Absences.Since(townID))
}

// Absent returns the error of a request, of run runID, that waits behind the pending command of run
// before. It returns nil unless that command waits for an absent game.
func (w *Worker) Absent(townID, before, runID string) error {
	a := w.of(townID, before)
	if since := w.Absences.Since(townID); a != nil && a.away.Load() != nil && !since.IsZero() {
		return Absent(townID, a.stored.Via, since, runID, before)
	}
	return nil
}

// AbsentPlugin returns the absence of a town's game, nil if the game was there at the last request.
// The absence names the run whose command waits for the game, if this writer is applying one.
func (w *Worker) AbsentPlugin(townID string) *messages.AbsentPlugin {
	since := w.Absences.Since(townID)
	if since.IsZero() {
		return nil
	}
	var away messages.AbsentPlugin
	if a := w.of(townID, ""); a != nil {
		away.RunID = a.RunID
		if waits := a.away.Load(); waits != nil {
			away = *waits
		}
	}
	away.TownID, away.Since = townID, runevents.Timestamp(since)
	away.Todo = runevents.PluginAbsent.Spec().Todo
	return &away
}
