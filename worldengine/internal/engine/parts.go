package engine

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
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
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
)

// parts are the parts below those that answer requests: they read the log and its index, give towns their turns, watch
// the log, decide and commit, and have games apply commands.
type parts struct {
	log          *records.Log
	index        *index.Index
	townCache    *records.TownCache
	history      *history.Reader
	runs         *runs.Reader
	finalRecords *runs.FinalRecords
	approvals    *approvals.Reader
	feed         *feed.Feed
	projector    *projector.Projector
	queue        *queue.Queue
	worldPause   *waiting.WorldPause
	appends      *appends.Authority
	watcher      *logwatch.Watcher
	stepper      *stepper.Stepper
	dispatcher   *game.Dispatcher
}

// newParts makes the parts in the order in which they need each other, as assemble does.
func newParts(ctx context.Context, s *storage, router game.Router, gameAlerts game.Alerts) *parts {
	c, x := &s.config, s.index.Index
	runReader, townCache := newRunReader(s), records.NewTownCache(s.log)
	finalRecords := &runs.FinalRecords{Log: s.log, Runs: runReader}
	feed, projector, queue := newFeed(s), newProjector(s, runReader), newQueue(ctx, c)
	worldPause := waiting.NewWorldPause(s.log, queue.WakeAll)
	authority := appends.New(s.log, projector, queue, c.Now)
	watcher := newWatcher(s, authority, townCache, worldPause)
	connectLog(s.log, x, feed, watcher)
	stepper := newStepper(s, townCache, watcher)
	return &parts{
		log: s.log, index: x, townCache: townCache, history: &history.Reader{Log: s.log}, runs: runReader,
		finalRecords: finalRecords, feed: feed, projector: projector, queue: queue,
		worldPause: worldPause, appends: authority, watcher: watcher, stepper: stepper,
		approvals: &approvals.Reader{
			Log: s.log, Index: x, Rules: c.Rules, Default: c.policy, Now: c.Now, Logger: c.Logger,
		},
		dispatcher: game.New(ctx, stepper, game.Config{
			Retry: c.Retry, RCON: c.RCON, Limits: c.waitLimits(), Timeout: operationTimeout,
			WorldPause: worldPause, FinalRecords: finalRecords, Queue: queue, Router: router,
			Alerts: gameAlerts, Metrics: c.Metrics, Logger: c.Logger,
		}),
	}
}

// newRunReader returns the reader of the runs, which raises the alerts that their projections find.
func newRunReader(s *storage) *runs.Reader {
	reader := runs.New(s.log, s.index.Index, func(alert runevents.Alert) { s.alerts.RaiseProjected("", alert) })
	reader.AnswerTime = s.index.AnswerTime
	return reader
}

func newStepper(s *storage, townCache *records.TownCache, watcher *logwatch.Watcher) *stepper.Stepper {
	c := &s.config
	return &stepper.Stepper{
		Log: s.log, TownCache: townCache, Now: c.Now, NewID: c.NewID, HasLease: c.HasLease,
		RequiredHistory: requiredHistory(s.index.Index), OnHistoryFull: watcher.NoteHistoryFull, Logger: c.Logger,
		Settings: machine.Settings{
			Rules: c.Rules, Binding: c.Binding, ApprovalPolicy: c.policy,
			ApprovalTimeout: c.ApprovalTimeout, Retry: c.Retry,
		},
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
	s *storage, authority *appends.Authority, townCache *records.TownCache, worldPause *waiting.WorldPause,
) *logwatch.Watcher {
	return logwatch.New(logwatch.Config{
		Conn: s.conn, Log: s.log, Index: s.index.Index, Alerts: s.alerts, Replicas: s.replicas,
		Now: s.config.Now, Logger: s.config.Logger,
		Forget: func() {
			authority.Forget()
			townCache.Clear()
		},
		RereadPause: worldPause.Reread,
		HasLease:    s.config.HasLease,
	})
}

// connectLog has the log ask the index, and report to those who follow it. Nothing may be committed before.
func connectLog(log *records.Log, x *index.Index, feed *feed.Feed, watcher *logwatch.Watcher) {
	connectIndex(log, x)
	log.OnAppended = func(seq uint64, msg *nats.Msg) {
		x.Put(seq, msg.Subject, msg.Header) // first: readers of the feed find the commit in the index
		feed.Appended(seq, msg)
	}
	log.OnStorageFull = watcher.NoteStorageFull
	log.OnDamaged = func(townToken string, err error) { watcher.ReportDamage(townToken, 0, err.Error()) }
}
