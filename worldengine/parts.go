package worldengine

import (
	"cmp"
	"context"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/game"
	"worldengine/worldengine/history"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/wire"
)

// readRuns makes the readers of runs, over the log and its index.
func (e *Engine) readRuns() {
	e.history = history.New(e.log, e.index)
	e.runs = runs.New(e.log, e.index, e.runConfig())
	e.ends = &runs.Ends{Log: e.log, Runs: e.runs}
}

// assemble makes the parts that work on the log and its index, in the turns of the queue. Commands
// are applied until ctx is done.
func (e *Engine) assemble(ctx context.Context, pause game.Pause, raise game.Alerts) {
	c := &e.config
	e.steps = &stepper.Stepper{
		Log: e.log, Now: c.Now, NewID: c.NewID, Lease: c.Lease,
		Settings: machine.Settings{
			Rules: c.Rules, Apply: c.Apply, Policy: c.policy,
			ApprovalTimeout: c.ApprovalTimeout, Plugin: c.Plugin,
		},
	}
	e.runs.Queue = e.queue
	e.worldPause = game.NewWorldPause(e.log, pause, e.queue)
	e.asked = &approvals.Counter{Reader: e.Approvals()}
	e.games = game.New(ctx, e.steps, game.Config{
		Policy: c.Plugin, RCON: c.RCON, PauseWait: c.PauseWait, AbsentWait: c.absentWait(),
		Timeout: operationTimeout, Towns: e.towns, Index: e.index, WorldPause: e.worldPause,
		Ends: e.ends, Queue: e.queue, Router: e.router, Alerts: raise,
		Metrics: c.Metrics, Logger: c.Logger,
	})
	e.absent = e.games.Absences
}

// runConfig configures the runs of the engine.
func (e *Engine) runConfig() runs.Config {
	return runs.Config{
		Appends: runevents.AppendPolicy{
			TenantID: e.config.TenantID, EngineSteps: machine.Steps(),
			EnginePlan: machine.IsEnginePlan, Transitions: e.config.ValidateTransitions,
		},
		Digested: e.digested,
		Alert: func(townToken string, alert runevents.Alert) {
			e.alerts.RaiseFound(townToken, alert)
		},
		Logger: e.config.Logger,
	}
}

// newFeed returns the feed of the commits, over a connection of followers.
func (e *Engine) newFeed(js jetstream.JetStream, nc *nats.Conn) *feed.Feed {
	var listening func(subject string) bool
	if e.config.Listeners != nil {
		listening = e.config.Listeners.Listening
	}
	return feed.New(feed.Config{
		Log: e.log, JetStream: js, Index: e.index, Publish: nc.Publish, Listening: listening,
		Logger: e.config.Logger,
		Damaged: func(seq uint64, err error) {
			alert := alerts.CommitDamaged.About(alerts.About{}, "{sequence}",
				strconv.FormatUint(seq, 10), "{error}", wire.Sentence(err))
			alert.LogSeq = seq
			e.alerts.RaiseOnce(alert)
		},
	})
}

// busConfig is the bus of the world, published over a connection of followers.
func (e *Engine) busConfig(nc *nats.Conn) bus.Config {
	return bus.Config{
		Conn: nc, World: e.config.World, Replicas: e.config.Replicas,
		Retention: e.config.BusRetention, Limit: e.config.BusLimit,
		Attempts: e.config.DeliveryAttempts, Raise: e.alerts.Raise, Logger: e.config.Logger,
	}
}

// digested returns the log sequence up to which what others append is projected; followed, without
// a projector.
func (e *Engine) digested() uint64 {
	if e.projector != nil {
		return e.projector.Position()
	}
	return e.index.Position()
}

// Draining reports whether the command of a paused run is still being applied, and waited for.
func (e *Engine) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	return e.games.Draining(ctx, run)
}

// needsPlugin reports whether a plugin or a console applies the commands of a town.
func (e *Engine) needsPlugin(ctx context.Context, townID string) (bool, error) {
	current, err := e.log.Load(ctx, townID)
	return current.State.Exists() && cmp.Or(current.Apply, e.config.Apply) != apply.Local, err
}
