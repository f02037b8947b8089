// Package game applies the commands of accepted handoffs through games. It asks the town's plugin
// or console, stores each attempt and the outcome, pauses runs with their towns, and cancels runs
// whose commands no game has received.
//
//	accepted ── Execution, the leading task of its town ── request ──> game
//	game ── reply ──> the Execution's turn ── one record ──> commit log
//
// A pending command is in the record of its town (apply.Pending), so the next writer can go on with
// it. state.next decides about each action of an Execution, apply.PluginAttempt about the requests to a plugin, and
// package machine about the effect of an outcome.
//
// The order of effects keeps a command from being applied twice, and from being taken for unapplied:
//
//   - The record of the accepted handoff MUST be stored before a game is asked. So must, in a writer that takes
//     the command over, the record that a request may have been received (claim).
//   - The run MUST be closed to others before its end is stored (machine.Output), and the end MUST be stored
//     before the client has its answer.
//   - That no request was received is stored last, by a writer that sends no more (recordUnreached).
//   - The alert of a cancellation by force MUST be stored before the cancellation.
package game

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// retryInterval is the pause between two looks at a condition that a command waits for.
const retryInterval = 250 * time.Millisecond

// Config configures a Dispatcher. All members but RCON and Metrics are required.
type Config struct {
	// Retry bounds the attempts, and the waits for plugins and consoles.
	Retry apply.RetryPolicy
	// RCON applies the commands of towns that are bound to it; nil if there is no console.
	RCON apply.Console
	// Limits bound a client's wait; then the client gets a *waiting.Error. Timeout bounds one turn.
	Limits  waiting.Limits
	Timeout time.Duration

	WorldPause   *waiting.WorldPause
	FinalRecords *runs.FinalRecords
	Queue        *queue.Queue
	Router       Router

	Alerts  Alerts
	Metrics Metrics
	Logger  *slog.Logger
}

// Alerts raises alerts. It is an *alerts.Alerts.
type Alerts interface {
	// Raise raises an alert. RaiseOnce does so unless an alert with its id is known. RaiseStored is RaiseOnce,
	// but returns after the alert is stored.
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
	Attempt(by apply.Binding, ended apply.AttemptResult, took time.Duration)
}

// Dispatcher has the executions of a world's pending commands, at most one for a town. It is safe for
// concurrent use.
type Dispatcher struct {
	Absences *Absences
	config   Config
	stepper  *stepper.Stepper
	// ctx ends the requests to games.
	ctx      context.Context
	stop     context.CancelFunc
	consoles sync.WaitGroup // requests to consoles
	// abandonCtx ends when a stopping writer stores no more about commands that it abandons.
	abandonCtx context.Context
	endAbandon context.CancelFunc

	mu         sync.Mutex
	executions map[string]*Execution // by the town's token
	closed     bool                  // no more commands are accepted
	drained    chan struct{}         // closed when no command is accepted, and no execution is left
}

// New returns a dispatcher that works until ctx is done.
func New(ctx context.Context, steps *stepper.Stepper, config Config) *Dispatcher {
	d := &Dispatcher{Absences: newAbsences(steps.Now, &config), config: config, stepper: steps,
		executions: map[string]*Execution{}, drained: make(chan struct{})}
	d.ctx, d.stop = context.WithCancel(ctx)
	d.abandonCtx, d.endAbandon = context.WithCancel(context.WithoutCancel(ctx))
	return d
}

// Execute starts the execution of a command that this writer has just committed. answerer gets the
// answer. Call Execute in the town's turn. It fails if the stored command is unreadable.
func (d *Dispatcher) Execute(
	ctx context.Context, townID string, current machine.Town, answerer Answerer,
) error {
	x, err := d.acceptedExecution(townID, current, answerer)
	if err != nil {
		return err
	}
	if !d.start(x) {
		x.recordUnreached(ctx) // the dispatcher is closed, and sends no request
		x.answer(machine.Answer{}, waiting.ErrInProgress)
	}
	return nil
}

// Reconcile makes the execution of a town agree with the town as it is now, in the log or by this writer's
// last step. After a start or a takeover it starts the execution of the pending command; after a lost
// race an execution goes on with the next attempt, or ends. The run of the command is paused or
// resumed with the town. Call Reconcile in the town's turn.
func (d *Dispatcher) Reconcile(ctx context.Context, townID string, current machine.Town) error {
	x, p := d.Execution(townID), current.Pending
	if x != nil && (p == nil || p.Run.RunID != x.RunID) {
		d.stepper.TownCache.Forget(townID)
		if err := x.concludeFromLog(ctx); err != nil {
			return err
		}
		x = nil
	}
	switch {
	case p == nil:
		return nil
	case x != nil:
		x.updatePending(p)
	default:
		var err error
		if x, err = d.adoptedExecution(townID, current); err != nil {
			return err
		}
		if !d.start(x) {
			return nil // the next writer adopts it
		}
	}
	x.pauseRun(ctx, d.config.WorldPause.Effective(current))
	return nil
}

// adoptLater starts an execution that adopts, after Retry.AdoptInterval, the command of an abandoned one. Before
// that, requests behind the command have no other execution started: if the command has to be abandoned each
// time, their turns would follow one another without a pause.
func (d *Dispatcher) adoptLater(abandoned *Execution) {
	x, err := d.adoptedExecution(abandoned.TownID, machine.Town{State: abandoned.before, Pending: abandoned.Pending})
	if err != nil {
		d.config.Logger.Error("an abandoned command cannot be read", "town", abandoned.TownID, "run", abandoned.RunID,
			"error", err)
		return
	}
	x.due = time.Now().Add(d.config.Retry.AdoptInterval())
	d.start(x)
}

// Execution returns the execution of a town, nil if there is none.
func (d *Dispatcher) Execution(townID string) *Execution {
	token := wire.TownToken(townID)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.executions[token]
}

// start starts an execution. It returns false if the dispatcher is closed.
func (d *Dispatcher) start(x *Execution) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.config.Queue.Lead(x.TownID, x) != nil {
		return false
	}
	d.executions[wire.TownToken(x.TownID)] = x
	return true
}

// Has reports whether the town with a token has an execution.
func (d *Dispatcher) Has(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.executions[token] != nil
}

func (d *Dispatcher) remove(x *Execution) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if token := wire.TownToken(x.TownID); d.executions[token] == x {
		delete(d.executions, token)
		d.closeDrained()
	}
}

// closeDrained closes drained if no execution is left. The caller holds the lock.
func (d *Dispatcher) closeDrained() {
	if d.closed && len(d.executions) == 0 {
		close(d.drained)
	}
}

// Count returns the number of commands that are being applied.
func (d *Dispatcher) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.executions)
}

// StopAccepting makes the dispatcher refuse new commands.
func (d *Dispatcher) StopAccepting() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		d.closeDrained()
	}
}

// stopTimeout is how long Stop waits for games that are about to answer.
const stopTimeout = 2 * time.Second

// Stop refuses new commands, and leaves those in hand pending unless their answers come within
// moments: the next writer of the world goes on with them. ctx bounds the wait; then all commands
// together have abandonTimeout to be abandoned.
func (d *Dispatcher) Stop(ctx context.Context) {
	d.StopAccepting()
	grace, done := context.WithTimeout(ctx, stopTimeout)
	defer done()
	select {
	case <-d.drained:
	case <-grace.Done():
	}
	d.stop()
	d.config.Queue.WakeAll()
	abandoned, done := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer done()
	time.AfterFunc(abandonTimeout, d.endAbandon) // also after Stop: a turn may just accept a command
	for _, end := range []context.Context{ctx, abandoned} {
		select {
		case <-d.drained:
			d.consoles.Wait()
			return
		case <-end.Done():
		}
	}
}

// CheckKey returns the error of a handoff with a key if a command with this key is being applied, the
// handoff's or another one's; else nil.
func (d *Dispatcher) CheckKey(townID, key, handoffID string) error {
	x := d.Execution(townID)
	switch {
	case x == nil || x.Handoff.IdempotencyKey != key:
		return nil
	case x.Handoff.HandoffID != handoffID:
		return waiting.KeyInUse(x.Handoff.HandoffID)
	}
	return waiting.StillApplying(x.RunID, townID, x.binding, d.Absences.StartOf(townID))
}

// CheckGame returns the error of a request, of run runID, that waits behind the pending command of run
// before. It returns nil unless that command waits for an absent game.
func (d *Dispatcher) CheckGame(townID, before, runID string) error {
	x := d.Execution(townID)
	if absent := d.Absences.AbsenceOf(townID); x != nil && x.RunID == before && absent != nil && absent.NextAt != "" {
		return waiting.GameAbsent(townID, x.binding, d.Absences.StartOf(townID), runID, before)
	}
	return nil
}

// AbsentGame returns the absence of a town's game, nil if the game was there at the last request.
// The absence names the run whose command waits for the game, if this writer is applying one.
func (d *Dispatcher) AbsentGame(townID string) *messages.AbsentPlugin {
	absent := d.Absences.AbsenceOf(townID)
	if x := d.Execution(townID); absent != nil && x != nil {
		absent.RunID = x.RunID
	}
	return absent
}
