package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/appends"
	"worldengine/worldengine/internal/engine/approvals"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/logwatch"
	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/engine/projector"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/lifecycle"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/memory"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/internal/store/worldsettings"
)

// Open starts an engine on nc, whose account must have JetStream, and makes or updates the world's
// streams. Requests wait while the index is being built. Close ends the engine; the connections
// stay open. Alerts, live messages and the bus use publishConn, which may be nc; a connection of
// their own keeps them from delaying commits.
func Open(ctx context.Context, nc, publishConn *nats.Conn, config Config) (*Engine, error) {
	e, err := prepare(ctx, nc, publishConn, config)
	if err != nil {
		return nil, err
	}
	if err := e.start(ctx, nc); err != nil {
		return nil, err
	}
	return e, nil
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

// prepare makes an engine over the streams of its world, in which nothing runs yet.
func prepare(ctx context.Context, nc, publishConn *nats.Conn, config Config) (*Engine, error) {
	given := config.Settings
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("engine: JetStream: %w", err)
	}
	if err := commitlog.CheckRestored(ctx, js, config.World); err != nil {
		return nil, err
	}
	replicas := logwatch.CheckReplicas(ctx, js, config.World, config.Logger)
	stream, isNew, err := openLog(ctx, js, &config, given)
	if err != nil {
		return nil, err
	}
	if err := openAlerts(ctx, js, &config, isNew); err != nil {
		return nil, err
	}
	e := &Engine{config: config, js: js, publishConn: publishConn}
	e.log = e.newLog(nc, stream)
	e.towns = records.NewTownCache(e.log)
	if err := e.makeAlerts(); err != nil {
		return nil, err
	}
	if err := e.openIndex(ctx); err != nil {
		return nil, err
	}
	e.watchLog(nc, replicas)
	if config.Storage.Index != nil {
		if err := e.completeIndex(ctx); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// newLog returns the log of a stream. The hooks are missing: see useIndex and watchLog.
func (e *Engine) newLog(nc *nats.Conn, stream jetstream.Stream) *records.Log {
	c := &e.config
	log := &records.Log{Log: &commitlog.Log{
		World: c.World, Stream: stream, Store: commitlog.NewStore(e.js, stream, c.Storage.GroupCommits),
		MaxPayload: nc.MaxPayload, Jitter: c.jitter, Now: c.Now,
	}, Retention: c.Storage.AppendedRetention}
	if c.Storage.Disk != nil {
		log.CheckStorage = c.Storage.Disk.Check
	}
	if c.Metrics != nil {
		log.OnAppendTried = c.Metrics.AppendTried
	}
	if log.Continuity.Connection = c.Dials; c.Dials == nil {
		log.Continuity.Connection = func() uint64 { return nc.Stats().Reconnects + e.publishConn.Stats().Reconnects }
	}
	if c.Storage.Index != nil { // the index may have followed an earlier log
		log.Continuity.Suspect()
	}
	return log
}

// watchLog makes the watcher of the log, to which the log reports from then on. The watcher runs once it is started.
func (e *Engine) watchLog(nc *nats.Conn, replicas *logwatch.Replicas) {
	c := &e.config
	e.watcher = logwatch.New(logwatch.Config{
		Conn: nc, Log: e.log, Index: e.index, Alerts: e.alerts, Replicas: replicas, Now: c.Now, Logger: c.Logger,
		Forget: func() {
			e.appends.Forget()
			e.towns.Clear()
		},
		RereadPause: func(ctx context.Context) error { return e.worldPause.Reread(ctx) },
		IsWriter:    func() bool { return e.stepper.IsWriter() },
	})
	e.log.OnStorageFull = e.watcher.NoteStorageFull
	e.log.OnDamaged = func(townToken string, err error) { e.watcher.ReportDamage(townToken, 0, err.Error()) }
}

// makeAlerts makes the alerts of the world, which may be raised from then on. They are published once
// they are started.
func (e *Engine) makeAlerts() error {
	js, err := jetstream.New(e.publishConn)
	if err != nil {
		return fmt.Errorf("engine: JetStream: %w", err)
	}
	e.alerts = alerts.New(js, e.config.alerts(commitlog.Identity(e.log.Stream.CachedInfo().Config)))
	return nil
}

// openAlerts opens or makes the stream of alerts.
func openAlerts(ctx context.Context, js jetstream.JetStream, config *Config, isNew bool) error {
	alertStream := alerts.AlertConfig(config.World, config.Storage.Replicas)
	err := commitlog.RetryTransient(ctx, func(ctx context.Context) error {
		_, err := js.Stream(ctx, alertStream.Name)
		return err
	})
	if !isNew && errors.Is(err, jetstream.ErrStreamNotFound) {
		config.Logger.Warn("the stream of the world's alerts is missing, and is made anew: the alerts "+
			"that it had are lost, unless the start before this one was cut off", "stream", alertStream.Name)
	}
	_, err = commitlog.OpenStream(ctx, js, alertStream, config.Logger)
	return err
}

// openLog opens or makes the log of the world, and sets the settings to serve with.
func openLog(
	ctx context.Context, js jetstream.JetStream, config *Config, given worldsettings.Settings,
) (stream jetstream.Stream, isNew bool, err error) {
	races := commitlog.Log{Jitter: config.jitter}
	err = races.RetryLostRaces(ctx, func() error {
		plan, err := worldsettings.PlanToServe(ctx, js, config.World, given, config.Storage.DiscardHistory)
		if err != nil {
			return err
		}
		isNew, config.Settings, config.policy = plan.New, plan.Settings, plan.Settings.Policy()
		if err := config.validate(); err != nil {
			return err
		}
		stream, err = worldsettings.OpenLog(ctx, js, config.World, plan, config.Storage.Replicas,
			config.Logger)
		return err
	})
	return stream, isNew, err
}

// start starts the parts of the engine, which run until Close. The requests are the last to start and the first
// to stop: a request in hand needs all of the other parts. What may raise an alert stops before the alerts, which
// publish those that were raised, and all of them before the index.
func (e *Engine) start(ctx context.Context, nc *nats.Conn) error {
	return e.parts.Start(ctx,
		lifecycle.Part{Name: "the index", Stop: e.closeIndex},
		lifecycle.Part{Name: "the bus", Start: e.openBus},
		lifecycle.Part{Name: "the alerts", Start: e.startAlerts, Stop: e.closeAlerts},
		lifecycle.Part{Name: "the inbox of games", Start: func(context.Context) (err error) {
			e.router, err = game.OpenInbox(cmp.Or(e.config.PluginConn, nc), e.alerts)
			return err
		}, Stop: e.closeInbox},
		lifecycle.Part{Name: "the work in the background", Start: e.startWork, Stop: e.stopWork},
		lifecycle.Part{Name: "the watch over the log", Start: e.watcher.Start, Stop: e.watcher.Stop},
		lifecycle.Part{Name: "the requests", Stop: e.finishRequests},
	)
}

// Close refuses requests, finishes those in hand, stops the background work, and publishes the
// raised alerts. ctx bounds the wait for requests in hand; a request that is cut off gets no
// answer. A command that a game is applying stays pending, unless its answer comes within moments.
// The next server of the world resumes it.
func (e *Engine) Close(ctx context.Context) error { return e.parts.Stop(ctx) }

func (e *Engine) finishRequests(ctx context.Context) error {
	e.dispatcher.Stop(ctx)
	return e.queue.Drain(ctx)
}

func (e *Engine) stopWork(context.Context) error {
	e.stop()
	e.background.Wait()
	return nil
}

func (e *Engine) startAlerts(context.Context) error {
	e.raiseLost()
	e.alerts.Start()
	return nil
}

func (e *Engine) closeAlerts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeAlertsTimeout)
	defer cancel()
	e.alerts.Close(ctx)
	return nil
}

func (e *Engine) closeInbox(context.Context) error {
	e.router.Close()
	return nil
}

// openBus opens the bus, if the world has one.
func (e *Engine) openBus(context.Context) (err error) {
	c := &e.config
	if c.Outbox.Enabled {
		e.outbox, err = outbox.New(outbox.Config{
			Conn: e.publishConn, World: c.World, Replicas: c.Storage.Replicas, Retention: c.Outbox.Retention,
			Limit: c.Outbox.Limit, Attempts: c.Outbox.Attempts, Raise: e.alerts.Raise, Logger: c.Logger,
		})
	}
	return err
}

// startWork assembles the parts that requests need, and starts the work in the background.
func (e *Engine) startWork(ctx context.Context) error {
	seq, paused, err := e.log.WorldPause(ctx)
	if err != nil {
		return err
	}
	ctx, e.stop = context.WithCancel(context.Background())
	e.queue = newQueue(ctx, &e.config)
	e.assemble(ctx, waiting.Pause{Seq: seq, By: paused}, e.alerts)
	work := []func(context.Context){e.recallAbsences, e.feed.Run, e.followLog, e.reapWaiting, e.project}
	if e.outbox != nil {
		work = append(work, e.outbox.Run)
	}
	for _, run := range work {
		e.background.Go(func() { run(ctx) })
	}
	return nil
}

// project projects runs until ctx is done, if it is configured, once no known alert is raised again.
func (e *Engine) project(ctx context.Context) {
	if e.alerts.LoadRaised(ctx) == nil && e.config.Runs.Projector { // see ADR 24
		e.projector.Run(ctx)
	}
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

// makeReaders makes what reads the log and its index.
func (e *Engine) makeReaders() {
	e.history = history.Reader{Log: e.log}
	e.memory = memory.NewReader(e.log, e.index)
	e.runs = runs.New(e.log, e.index, func(alert runevents.Alert) { e.alerts.RaiseProjected("", alert) })
	e.finalRecords = &runs.FinalRecords{Log: e.log, Runs: e.runs}
	e.feed = feed.New(feed.Config{
		Log: e.log, Index: e.index, Publish: e.publishConn.Publish,
		Logger: e.config.Logger, HasSubscribers: e.config.HasSubscribers,
		OnDamaged: func(seq uint64, err error) {
			alert := alerts.CommitDamaged.Alert(alerts.About{}, "{sequence}",
				strconv.FormatUint(seq, 10), "{error}", phrase.Sentence(err))
			alert.LogSeq = seq
			e.alerts.RaiseOnce(alert)
		},
	})
	e.projector = projector.New(projector.Config{
		Log: e.log, Index: e.index, Runs: e.runs,
		Appends: runlog.AppendPolicy{
			TenantID: e.config.Runs.TenantID, EngineSteps: machine.Steps(),
			EnginePlan: machine.IsEnginePlan, Transitions: e.config.Runs.ValidateTransitions,
		},
		Alert: func(townToken string, alert runevents.Alert) bool {
			return e.alerts.RaiseProjected(townToken, alert)
		},
		Now: e.config.Now, Logger: e.config.Logger,
	})
}

// assemble makes the parts that work on the log and its index, in the turns of the queue. Commands
// are applied until ctx is done.
func (e *Engine) assemble(ctx context.Context, pause waiting.Pause, raise game.Alerts) {
	c := &e.config
	e.stepper = &stepper.Stepper{
		Log: e.log, Towns: e.towns, Now: c.Now, NewID: c.NewID, Leased: c.IsWriter,
		RequiredHistory: e.requiredHistory, OnHistoryFull: e.watcher.NoteHistoryFull, Logger: c.Logger,
		Settings: machine.Settings{
			Rules: c.Rules, Binding: c.Apply, ApprovalPolicy: c.policy,
			ApprovalTimeout: c.ApprovalTimeout, Retry: c.Retry,
		},
	}
	e.appends = appends.New(e.log, e.projector, e.queue, c.Now)
	e.worldPause = waiting.NewWorldPause(e.log, pause, e.queue.WakeAll)
	e.approvals = &approvals.Reader{
		Log: e.log, Index: e.index, Rules: c.Rules, Default: c.policy, Now: c.Now, Logger: c.Logger,
	}
	e.dispatcher = game.New(ctx, e.stepper, game.Config{
		Retry: c.Retry, RCON: c.RCON, Limits: c.waitLimits(), Timeout: operationTimeout,
		WorldPause:   e.worldPause,
		FinalRecords: e.finalRecords, Queue: e.queue, Router: e.router, Alerts: raise,
		Metrics: c.Metrics, Logger: c.Logger,
	})
	e.absences = e.dispatcher.Absences
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
