// Package worldengine is the authoritative engine of a world: it judges handoffs against the true
// state of their town, applies the accepted ones, and commits its decisions.
//
//	input, town ── machine.Step ──> record ── one message ──> commit log ──> index ──> answer
//
// The commit log is the truth (package commitlog): one message per decision, which holds the town's
// new state, the result and the run's events together or not at all. Each is guarded by the town's
// message before it, so a writer that lost its lease and does not know it yet changes nothing. The
// index finds records in the log (package index). Package service puts the engine on NATS.
package worldengine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/runevents/recent"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/game"
	"worldengine/worldengine/history"
	"worldengine/worldengine/index"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/stepper"
)

// Bounds of one request's work.
const (
	// operationTimeout is how long one request may take once it has its town.
	operationTimeout = 10 * time.Second
	// indexTimeout is how long one request waits for the index from its arrival, and minIndexWait
	// how long one that had to wait for its town does.
	indexTimeout = 2 * time.Second
	minIndexWait = 100 * time.Millisecond
	// pollPause is the pause between two looks at a condition that the engine waits for.
	pollPause = 250 * time.Millisecond
)

// Engine is the authoritative engine of one world: of the servers of a world one has an engine, the
// writer. It is safe for concurrent use.
type Engine struct {
	config  Config
	steps   *stepper.Stepper
	js      jetstream.JetStream
	log     *commitlog.Log
	history history.Reader
	towns   *commitlog.Towns
	index   *index.Index
	lost    []index.Row // which the log did not have any more when the index was opened
	queue   *queue.Queue
	runs    *runs.Store
	ends    *runs.Ends
	alerts  *alerts.Alerts
	feed    *feed.Feed

	// games has the commands that games apply, and router carries its requests.
	games  *game.Worker
	router game.Router
	absent *game.Absences
	asked  *approvals.Counter
	// The pause of the world, and the runs that were cancelled lately.
	worldPause  *game.WorldPause
	townsPaused atomic.Int64
	cancelled   *recent.Map[string, struct{}]
	waits       waits
	// waitTrouble limits the warnings about runs that wait and cannot be recorded, and reapTrouble
	// about those that cannot be ended.
	waitTrouble, reapTrouble backoff.Seldom

	bus       *bus.Sink       // nil without Config.Bus
	projector *runs.Projector // nil without Config.Projector
	logLost   atomic.Pointer[error]

	stop       context.CancelFunc
	background sync.WaitGroup
}

// newRun returns the identity of a new run.
func (e *Engine) newRun(planID, planVersion string) (runevents.Identity, error) {
	runID, err := e.config.newRunID()
	return runevents.Identity{
		RunID: runID, TenantID: e.config.TenantID, ProjectID: e.config.ProjectID,
		EnvironmentID: e.config.EnvironmentID, PlanID: planID, PlanVersion: planVersion,
	}, err
}
