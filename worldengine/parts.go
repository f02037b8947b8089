package worldengine

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/presence"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// newStepper returns what has the machine decide, and commits its records.
func (e *Engine) newStepper() *stepper.Stepper {
	return &stepper.Stepper{
		Log: e.log, Now: e.config.Now, NewID: e.config.NewID,
		Settings: machine.Settings{
			Rules: e.config.Rules, Apply: e.config.Apply, Policy: e.config.policy,
			ApprovalTimeout: e.config.ApprovalTimeout, Plugin: e.config.Plugin,
		},
	}
}

// runConfig is what the runs of the engine are kept with.
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

// newFeed returns what shows the commits to their readers, over a connection of followers.
func (e *Engine) newFeed(js jetstream.JetStream, nc *nats.Conn) *feed.Feed {
	return feed.New(feed.Config{
		Log: e.log, JetStream: js, Publish: nc.Publish, Listening: e.config.Listening, Logger: e.config.Logger,
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

// waitingConfig is the configuration of the waiting runs.
func (e *Engine) waitingConfig() waiting.Config {
	return waiting.Config{
		History: e.config.HistoryPerTown, Serves: e.config.Serves,
		Ended: e.runEnded,
		Left: func(run runevents.Identity, townID string, err error) {
			about := alerts.About{TownID: townID, RunID: run.RunID, Trace: run.Trace}
			alert := alerts.LeftWaiting.About(about)
			if err != nil {
				alert = alerts.LeftUncancelled.About(about, "{error}", err.Error())
			}
			e.alerts.RaiseOnce(alert)
		},
		Logger: e.config.Logger,
	}
}

// gameConfig is what works on the commands that are applied outside the engine.
func (e *Engine) gameConfig() game.Config {
	return game.Config{
		World: e.config.World, Policy: e.config.Plugin, RCON: e.config.RCON,
		PauseWait: e.config.PauseWait, AbsentWait: e.config.absentWait(),
		Timeout: operationTimeout,
		Towns:   e.towns, WorldPause: e.worldPause,
		Absent: e.absent, TownOf: e.runs.Town, EndOf: e.recordOfEnd,
		Concluded: func(answer *machine.Answer) { e.results.count(answer.Result.Status) },
		Raise:     func(alert runevents.Alert) { e.alerts.RaiseOnce(alert) },
		RaiseStored: func(ctx context.Context, alert runevents.Alert) error {
			return e.alerts.RaiseStored(ctx, alert)
		},
		Serves: e.config.Serves, OnAttempt: e.config.OnAttempt,
		Now: e.config.Now, Draw: e.config.draw, Logger: e.config.Logger,
	}
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

// runEnded reports whether a run has ended.
func (e *Engine) runEnded(ctx context.Context, runID string) (bool, error) {
	run, err := e.runs.Get(ctx, runID)
	if errors.Is(err, runs.ErrUnknownRun) {
		return false, nil // nothing of it is kept
	}
	return run.Status.Terminal(), err
}

// newAbsences returns what remembers which towns have no plugin.
func (e *Engine) newAbsences() *presence.Absences {
	return presence.New(presence.Config{
		After: e.config.Plugin.Resend, Policy: e.config.Plugin.Absent,
		Now: e.config.Now, Logger: e.config.Logger,
		// Not RaiseOnce: a run may find more absences than one.
		Raise: func(alert runevents.Alert) { e.alerts.Raise(alert) },
	})
}
