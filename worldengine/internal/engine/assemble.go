package engine

import (
	"cmp"
	"context"

	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/kit/lifecycle"
	"worldengine/worldengine/internal/store/memory"
	"worldengine/worldengine/internal/store/samples"
)

// assemble makes the parts of an engine over its storage, each complete, in the order in which they need each
// other. Nothing runs yet. The turns of towns and the requests to games get ctx, and end with it at the latest.
// router carries those requests, and gameAlerts raises the alerts about them.
func assemble(ctx context.Context, s *storage, router game.Router, gameAlerts game.Alerts) *Engine {
	ctx, stop := context.WithCancel(ctx)
	c, p := &s.config, newParts(ctx, s, router, gameAlerts)
	receipts := &Receipts{log: p.log, index: p.index, townCache: p.townCache, watcher: p.watcher}
	recorder := &signalRecorder{stepper: p.stepper, newRun: c.newRun}
	handoffs := &Handoffs{
		log: p.log, townCache: p.townCache, receipts: receipts, queue: p.queue, stepper: p.stepper,
		dispatcher: p.dispatcher, worldPause: p.worldPause, signalRecorder: recorder, limits: c.waitLimits(),
		newRun: c.newRun, notifier: c.Notifier, logger: c.Logger,
	}
	signals := &Signals{
		log: p.log, finalRecords: p.finalRecords, receipts: receipts, queue: p.queue, stepper: p.stepper,
		dispatcher: p.dispatcher, worldPause: p.worldPause, handoffs: handoffs, signalRecorder: recorder,
	}
	towns := &Towns{
		log: p.log, history: p.history, index: p.index, approvals: p.approvals, dispatcher: p.dispatcher,
		binding: c.Binding, policy: &c.policy, logger: c.Logger,
	}
	changes := &Changes{
		log: p.log, index: p.index, receipts: receipts, queue: p.queue, stepper: p.stepper,
		dispatcher: p.dispatcher, towns: towns, limits: c.waitLimits(), mayBind: c.mayBind, logger: c.Logger,
	}
	status := &Status{
		js: s.js, log: p.log, index: s.index, queue: p.queue, stepper: p.stepper, dispatcher: p.dispatcher,
		approvals: p.approvals, worldPause: p.worldPause, alerts: s.alerts, watcher: p.watcher, feed: p.feed,
		outbox: s.outbox, projector: p.projector, projects: c.Runs.Projector, now: c.Now,
	}
	work := &background{
		ctx: ctx, stop: stop, feed: p.feed, alerts: s.alerts, projector: p.projector,
		projects: c.Runs.Projector, outbox: s.outbox,
		follower: &follower{
			log: p.log, index: p.index, approvals: p.approvals, towns: towns, queue: p.queue,
			stepper: p.stepper, dispatcher: p.dispatcher, adoptInterval: c.Retry.AdoptInterval(), logger: c.Logger,
		},
		reaper: &reaper{
			log: p.log, index: p.index, finalRecords: p.finalRecords, stepper: p.stepper, handoffs: handoffs,
			alerts: s.alerts, now: c.Now, logger: c.Logger,
		},
	}
	return &Engine{
		parts: p, config: *c, samples: s.index, keepsIndex: c.Storage.Index != nil, background: work,
		alerts: s.alerts, memory: memory.NewReader(p.log, p.index), receipts: receipts, handoffs: handoffs,
		signals: signals, towns: towns, changes: changes, status: status,
	}
}

// start assembles an engine over its storage, and starts its parts, which run until Close. The requests are the
// last to start and the first to stop: a request in hand needs all of the other parts. Whoever may raise an alert stops
// before the alerts, which publish those that were raised, and all of them before the index.
func start(ctx context.Context, s *storage) (*Engine, error) {
	inbox := game.NewInbox(cmp.Or(s.config.PluginConn, s.conn), s.alerts)
	e := assemble(context.Background(), s, inbox, s.alerts)
	err := e.running.Start(ctx,
		lifecycle.Part{Name: "the index", Start: e.completeIndex, Stop: e.closeIndex},
		lifecycle.Part{Name: "the alerts", Start: e.startAlerts, Stop: e.closeAlerts},
		lifecycle.Part{Name: "the inbox of games", Start: inbox.Start, Stop: inbox.Stop},
		// An earlier writer may have paused the world while the index was opened, which can take long.
		lifecycle.Part{Name: "the pause of the world", Start: e.worldPause.Reread},
		lifecycle.Part{Name: "the work in the background", Start: e.background.Start, Stop: e.background.Stop},
		lifecycle.Part{Name: "the watch over the log", Start: e.watcher.Start, Stop: e.watcher.Stop},
		lifecycle.Part{Name: "the requests", Stop: e.finishRequests},
	)
	if err != nil {
		e.background.stop()
		_ = e.queue.Drain(ctx) // has no tasks, but its share of a pool
		return nil, err
	}
	return e, nil
}

// Close refuses requests, finishes those in hand, stops the background work, and publishes the
// raised alerts. ctx bounds the wait for requests in hand; a request that is cut off gets no
// answer. A command that a game is applying stays pending, unless its answer comes within moments.
// The next server of the world resumes it.
func (e *Engine) Close(ctx context.Context) error { return e.running.Stop(ctx) }

// completeIndex completes the index of a standby.
func (e *Engine) completeIndex(ctx context.Context) error {
	if !e.keepsIndex {
		return nil
	}
	return completeIndex(ctx, e.log, e.index)
}

// closeIndex closes the index, unless others use it.
func (e *Engine) closeIndex(context.Context) error {
	if e.keepsIndex {
		return nil
	}
	return e.samples.Close()
}

// DetachIndex returns the index, and makes Close leave it open.
func (e *Engine) DetachIndex() *samples.SampledIndex {
	e.keepsIndex = true
	return e.samples
}

func (e *Engine) startAlerts(context.Context) error {
	e.alerts.Start()
	return nil
}

func (e *Engine) closeAlerts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeAlertsTimeout)
	defer cancel()
	e.alerts.Close(ctx)
	return nil
}

func (e *Engine) finishRequests(ctx context.Context) error {
	e.dispatcher.Stop(ctx)
	return e.queue.Drain(ctx)
}
