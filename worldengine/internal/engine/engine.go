// Package engine is the authoritative engine of a world. It judges handoffs against the true
// state of their town, applies the accepted ones, and commits its decisions.
//
//	input, town ── machine.Step ──> record ── one message ──> commit log ──> index ──> answer
//
// The commit log is the truth (package commitlog): it has one message per decision. A message holds
// the town's new state, the result and the run's events together or not at all. Each message is
// guarded by the town's previous message, so a writer that does not know yet that it lost its lease
// changes nothing. The index finds records in the log (package index). Package service puts the
// engine on NATS.
//
// An Engine is a front of parts, of which each has the members that it needs:
//
//	Handoffs, Signals, Changes handoffs, the signals of operators, other changes of towns: in turns of the towns
//	Towns, Receipts, Status    the towns, the used keys and the state of the engine, for those who only read
//	background                 the work without requests: follower, reaper, feed, projector, bus
//	parts                      below those: the log and its readers, turns, the stepper, the dispatcher of games
//
// Open opens the storage of a world, assemble makes the parts over it, and start starts them.
package engine

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine/appends"
	"worldengine/worldengine/internal/engine/approvals"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/engine/logwatch"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/lifecycle"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/memory"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/internal/store/worldsettings"
)

// Errors of the engine. Bad input is a *schemas.ValidationError. After every other error the client
// may send the request again: nothing was changed, or the same request finds the change.
var (
	// ErrOverloaded means that a bounded queue is full. Ask again after a pause.
	ErrOverloaded = queue.ErrOverloaded
	// ErrStopping means that the engine is draining. Ask another writer, or this one after its restart.
	ErrStopping = queue.ErrStopping

	// ErrIndexBehind means that the index has not followed the log yet, so it is not known whether a key is
	// free. Nothing was judged; ask again.
	ErrIndexBehind = index.ErrBehind

	// ErrInProgress means that a handoff with this key is accepted and being applied. Ask again: there will
	// be a result. If the run is known the error is a *WaitError.
	ErrInProgress = waiting.ErrInProgress

	// ErrHistoryFull means that the log would discard a record that the town needs, to store another one. Ask
	// again when the town has moved on.
	ErrHistoryFull = records.ErrHistoryFull

	// ErrUnknownTown means that there is no such town.
	ErrUnknownTown = town.ErrUnknown

	// ErrRevisionGone means that the log does not keep such a revision of the town, or the town never had it.
	ErrRevisionGone = history.ErrRevisionGone

	// ErrUnknownResult means that no handoff with that key was accepted, as far as the log goes back.
	ErrUnknownResult = errors.New("engine: no handoff with this key was accepted")
)

// WaitError tells a client that its request waited and gets no result.
type WaitError = waiting.Error

// Bounds of one request's work.
const (
	// operationTimeout is how long one request may take once its turn has begun.
	operationTimeout = 10 * time.Second
	// indexTimeout is how long one request may wait for the index, from its arrival. If it had to
	// wait for its town, it may still wait for minIndexTimeout.
	indexTimeout    = 2 * time.Second
	minIndexTimeout = 100 * time.Millisecond
	// closeAlertsTimeout bounds the wait for the raised alerts to be stored when an engine closes.
	closeAlertsTimeout = 2 * time.Second
	// retryInterval is the pause between two looks at a condition that the engine waits for.
	retryInterval = 250 * time.Millisecond
)

// Engine is the authoritative engine of one world. Among the servers of a world only the writer has
// one. Requests ask its parts. It is safe for concurrent use.
type Engine struct {
	*parts
	config     Config
	samples    *samples.SampledIndex // of the parts' index
	keepsIndex bool                  // Close leaves it open
	alerts     *alerts.Alerts
	memory     *memory.Reader
	receipts   *Receipts
	handoffs   *Handoffs
	signals    *Signals
	towns      *Towns
	changes    *Changes
	status     *Status
	background *background
	running    lifecycle.List // see start
}

// Handoffs returns what judges the handoffs of the engine's world.
func (e *Engine) Handoffs() *Handoffs { return e.handoffs }

// Signals returns what carries out the signals of operators.
func (e *Engine) Signals() *Signals { return e.signals }

// Changes returns what changes towns without handoffs.
func (e *Engine) Changes() *Changes { return e.changes }

// Towns returns what shows the towns.
func (e *Engine) Towns() *Towns { return e.towns }

// Receipts returns the receipts of the handoffs that the towns accepted.
func (e *Engine) Receipts() *Receipts { return e.receipts }

// Status returns how the engine is.
func (e *Engine) Status() *Status { return e.status }

// Alerts returns the alerts of the world.
func (e *Engine) Alerts() *alerts.Alerts { return e.alerts }

// Appends returns the append authority of the world.
func (e *Engine) Appends() *appends.Authority { return e.appends }

// Approvals returns the reader of the proposals that wait for a person's approval.
func (e *Engine) Approvals() *approvals.Reader { return e.approvals }

// Feed returns the commits of the world for their readers.
func (e *Engine) Feed() *feed.Feed { return e.feed }

// History returns the history of the towns.
func (e *Engine) History() *history.Reader { return e.history }

// Memory returns what reads the memory of the towns.
func (e *Engine) Memory() *memory.Reader { return e.memory }

// Runs returns the reader of the runs.
func (e *Engine) Runs() *runs.Reader { return e.runs }

// Fixtures returns the fixtures of a run: see runs.FinalRecords.Fixtures.
func (e *Engine) Fixtures(ctx context.Context, runID string) ([]*fixture.Fixture, error) {
	return e.finalRecords.Fixtures(ctx, runID, e.receipts.find)
}

// Watcher returns the watcher of the log.
func (e *Engine) Watcher() *logwatch.Watcher { return e.watcher }

// Settings returns the settings of the world that the engine was opened with.
func (e *Engine) Settings() worldsettings.Settings { return e.config.Settings }

// Bounds returns how many requests may wait for one town, and how many may be in hand altogether.
func (e *Engine) Bounds() (perTown, total int) { return e.config.Bounds.PerTown, e.config.Bounds.Total }
