package engine

import (
	"cmp"
	"context"
	"strconv"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/appends"
	"worldengine/worldengine/internal/engine/approvals"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/logwatch"
	"worldengine/worldengine/internal/engine/projector"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/lifecycle"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/memory"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/store/samples"
)

// assemble makes the parts of an engine over its storage, each complete, in the order in which they need each
// other. Nothing runs yet. The turns of towns and the requests to games get ctx, and end with it at the latest.
// router carries those requests, and gameAlerts raises the alerts about them.
func assemble(ctx context.Context, s *storage, router game.Router, gameAlerts game.Alerts) *Engine {
	c := &s.config
	e := &Engine{config: *c, js: s.js, log: s.log, samples: s.index, index: s.index.Index, alerts: s.alerts, outbox: s.outbox}
	e.ctx, e.stop = context.WithCancel(ctx)
	e.queue = newQueue(e.ctx, c)
	townCache := records.NewTownCache(s.log)
	e.history = &history.Reader{Log: s.log}
	e.memory = memory.NewReader(s.log, e.index)
	e.runs = runs.New(s.log, e.index, func(alert runevents.Alert) { s.alerts.RaiseProjected("", alert) })
	e.runs.AnswerTime = s.index.AnswerTime
	e.finalRecords = &runs.FinalRecords{Log: s.log, Runs: e.runs}
	e.approvals = &approvals.Reader{
		Log: s.log, Index: e.index, Rules: c.Rules, Default: c.policy, Now: c.Now, Logger: c.Logger,
	}
	e.feed = newFeed(s)
	e.projector = newProjector(s, e.runs)
	e.appends = appends.New(s.log, e.projector, e.queue, c.Now)
	e.worldPause = waiting.NewWorldPause(s.log, s.pause, e.queue.WakeAll)
	e.watcher = newWatcher(s, e.appends, townCache, e.worldPause)
	e.receipts = &Receipts{log: s.log, index: e.index, townCache: townCache, watcher: e.watcher}
	e.stepper = &stepper.Stepper{
		Log: s.log, Towns: townCache, Now: c.Now, NewID: c.NewID, Leased: c.IsWriter,
		RequiredHistory: requiredHistory(e.index), OnHistoryFull: e.watcher.NoteHistoryFull, Logger: c.Logger,
		Settings: machine.Settings{
			Rules: c.Rules, Binding: c.Apply, ApprovalPolicy: c.policy,
			ApprovalTimeout: c.ApprovalTimeout, Retry: c.Retry,
		},
	}
	e.dispatcher = game.New(e.ctx, e.stepper, game.Config{
		Retry: c.Retry, RCON: c.RCON, Limits: c.waitLimits(), Timeout: operationTimeout,
		WorldPause: e.worldPause, FinalRecords: e.finalRecords, Queue: e.queue, Router: router,
		Alerts: gameAlerts, Metrics: c.Metrics, Logger: c.Logger,
	})
	e.absences = e.dispatcher.Absences
	recorder := &signalRecorder{stepper: e.stepper, newRun: c.newRun}
	e.judge = &Judge{
		log: s.log, townCache: townCache, receipts: e.receipts, queue: e.queue, stepper: e.stepper,
		dispatcher: e.dispatcher, worldPause: e.worldPause, signals: recorder, limits: c.waitLimits(),
		newRun: c.newRun, notifier: c.Notifier, logger: c.Logger,
	}
	e.towns = &Towns{
		log: s.log, history: e.history, index: e.index, approvals: e.approvals, dispatcher: e.dispatcher,
		apply: c.Apply, policy: &c.policy, logger: c.Logger,
	}
	e.changes = &Changes{
		log: s.log, index: e.index, receipts: e.receipts, queue: e.queue, stepper: e.stepper,
		dispatcher: e.dispatcher, towns: e.towns, limits: c.waitLimits(), mayBind: c.mayBind, logger: c.Logger,
	}
	e.signals = &Signals{
		log: s.log, finalRecords: e.finalRecords, receipts: e.receipts, queue: e.queue, stepper: e.stepper,
		dispatcher: e.dispatcher, worldPause: e.worldPause, judge: e.judge, recorder: recorder,
	}
	connectLog(s.log, e.index, e.feed, e.watcher)
	return e
}

func newQueue(ctx context.Context, config *Config) *queue.Queue {
	if config.Bounds.Pool != nil {
		return config.Bounds.Pool.Open(ctx, config.Bounds.PerTown, config.Logger)
	}
	return queue.New(ctx, queue.Config{
		Workers: config.Bounds.Workers, PerTown: config.Bounds.PerTown,
		Total: config.Bounds.Total, Logger: config.Logger,
	})
}

func newFeed(s *storage) *feed.Feed {
	return feed.New(feed.Config{
		Log: s.log, Index: s.index.Index, Publish: s.publishConn.Publish,
		Logger: s.config.Logger, HasSubscribers: s.config.HasSubscribers,
		OnDamaged: func(seq uint64, err error) {
			alert := alerts.CommitDamaged.Alert(alerts.About{}, "{sequence}",
				strconv.FormatUint(seq, 10), "{error}", phrase.Sentence(err))
			alert.LogSeq = seq
			s.alerts.RaiseOnce(alert)
		},
	})
}

func newProjector(s *storage, reader *runs.Reader) *projector.Projector {
	c := &s.config
	return projector.New(projector.Config{
		Log: s.log, Index: s.index.Index, Runs: reader,
		Appends: runlog.AppendPolicy{
			TenantID: c.Runs.TenantID, EngineSteps: machine.Steps(),
			EnginePlan: machine.IsEnginePlan, Transitions: c.Runs.ValidateTransitions,
		},
		Alert: s.alerts.RaiseProjected, Now: c.Now, Logger: c.Logger,
	})
}

// newWatcher returns the watcher of the log, which has the caches of the log forget an earlier log.
func newWatcher(
	s *storage, appended *appends.Authority, towns *records.TownCache, worldPause *waiting.WorldPause,
) *logwatch.Watcher {
	return logwatch.New(logwatch.Config{
		Conn: s.conn, Log: s.log, Index: s.index.Index, Alerts: s.alerts, Replicas: s.replicas,
		Now: s.config.Now, Logger: s.config.Logger,
		Forget: func() {
			appended.Forget()
			towns.Clear()
		},
		RereadPause: worldPause.Reread,
		IsWriter:    s.config.IsWriter,
	})
}

// connectLog has the log ask the index, and report to those who follow it. Nothing may be committed before.
func connectLog(log *records.Log, x *index.Index, commits *feed.Feed, watcher *logwatch.Watcher) {
	connectIndex(log, x)
	log.OnAppended = func(seq uint64, msg *nats.Msg) {
		x.Put(seq, msg.Subject, msg.Header) // first: readers of the feed find the commit in the index
		commits.Appended(seq, msg)
	}
	log.OnStorageFull = watcher.NoteStorageFull
	log.OnDamaged = func(townToken string, err error) { watcher.ReportDamage(townToken, 0, err.Error()) }
}

// start assembles an engine over its storage, and starts its parts, which run until Close. The requests are the
// last to start and the first to stop: a request in hand needs all of the other parts. Whoever may raise an alert stops
// before the alerts, which publish those that were raised, and all of them before the index.
func start(ctx context.Context, s *storage) (*Engine, error) {
	inbox := game.NewInbox(cmp.Or(s.config.PluginConn, s.conn), s.alerts)
	e := assemble(context.Background(), s, inbox, s.alerts)
	err := e.parts.Start(ctx,
		lifecycle.Part{Name: "the index", Start: e.completeIndex, Stop: e.closeIndex},
		lifecycle.Part{Name: "the alerts", Start: e.startAlerts, Stop: e.closeAlerts},
		lifecycle.Part{Name: "the inbox of games", Start: inbox.Start, Stop: inbox.Stop},
		lifecycle.Part{Name: "the work in the background", Start: e.startWork, Stop: e.stopWork},
		lifecycle.Part{Name: "the watch over the log", Start: e.watcher.Start, Stop: e.watcher.Stop},
		lifecycle.Part{Name: "the requests", Stop: e.finishRequests},
	)
	if err != nil {
		e.stop()
		_ = e.queue.Drain(ctx) // has no tasks, but its share of a pool
		return nil, err
	}
	return e, nil
}

// Close refuses requests, finishes those in hand, stops the background work, and publishes the
// raised alerts. ctx bounds the wait for requests in hand; a request that is cut off gets no
// answer. A command that a game is applying stays pending, unless its answer comes within moments.
// The next server of the world resumes it.
func (e *Engine) Close(ctx context.Context) error { return e.parts.Stop(ctx) }

// completeIndex completes the index of a standby.
func (e *Engine) completeIndex(ctx context.Context) error {
	if e.config.Storage.Index == nil {
		return nil
	}
	return completeIndex(ctx, e.log, e.index)
}

// closeIndex closes the index, unless Config has it.
func (e *Engine) closeIndex(context.Context) error {
	if e.config.Storage.Index != nil {
		return nil
	}
	return e.samples.Close()
}

// DetachIndex returns the index, and makes Close leave it open.
func (e *Engine) DetachIndex() *samples.SampledIndex {
	e.config.Storage.Index = e.samples
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

// startWork starts the work in the background.
func (e *Engine) startWork(context.Context) error {
	work := []func(context.Context){e.recallAbsences, e.feed.Run, e.followLog, e.reapWaiting, e.project}
	if e.outbox != nil {
		work = append(work, e.outbox.Run)
	}
	for _, run := range work {
		e.background.Go(func() { run(e.ctx) })
	}
	return nil
}

func (e *Engine) stopWork(context.Context) error {
	e.stop()
	e.background.Wait()
	return nil
}

func (e *Engine) finishRequests(ctx context.Context) error {
	e.dispatcher.Stop(ctx)
	return e.queue.Drain(ctx)
}

// project projects runs until ctx is done, if it is configured, once no known alert is raised again.
func (e *Engine) project(ctx context.Context) {
	if e.alerts.LoadRaised(ctx) == nil && e.config.Runs.Projector { // see ADR 24
		e.projector.Run(ctx)
	}
}

// recallAbsences recalls which towns had no game when an earlier engine ended. It ends the absences
// of towns that need none any more: that engine may have ended before it raised the alert.
func (e *Engine) recallAbsences(ctx context.Context) {
	e.absences.Recall(ctx)
	for townID := range e.absences.Towns() {
		current, err := e.log.Load(ctx, townID)
		if err == nil && (!current.State.Exists() ||
			cmp.Or(current.Binding, e.config.Apply) == apply.Local) {
			e.absences.NoteUnneeded(townID)
		}
	}
}
