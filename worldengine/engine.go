// Package worldengine is the authoritative engine of a world: it judges handoffs against the true
// state of their town, applies the accepted ones, and commits what it decided.
//
//	*handoff.Handoff ── Check ──> accepted? ── rules ──> state after ── one record ──> commit log
//	                                                                        │
//	                                         receipts, run events <── followers
//
// The commit log is the truth (see commitLog): one message per decision, holding the town's new
// state, the result and the run's events together or not at all, guarded so that JetStream itself
// makes one line of a town's history across any number of engines. Receipts and run events are
// derived from it. Package service puts the engine on NATS.
package worldengine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/projection"
)

// Bounds of one request's work.
const (
	// operationTimeout is how long one request may take once it has its town.
	operationTimeout = 10 * time.Second
	// receiptsTimeout is how long one request waits for the receipts to follow the log.
	receiptsTimeout = 2 * time.Second
	// maxRaces is how often one request is judged again because another instance was first.
	maxRaces = 64
)

// Engine is the authoritative engine of one world. It is safe for concurrent use, and any number
// of engines may work on the same world.
type Engine struct {
	config   Config
	log      *commitLog
	towns    *towns
	keys     keyLocks
	receipts *dedupe.Receipts
	events   jetstream.Stream
	queues   *queues
	runs     runCache
	results  resultCounts
	alerts   *alerts

	// What is applied outside the engine: by whom it is asked, and until when.
	inbox        postbox
	mark         func(ctx context.Context, townID string) error
	marks        *marks
	applyings    applyings
	applyContext context.Context
	stopApplying context.CancelFunc
	// What operators say: the pause of the world, and the runs that were cancelled lately.
	worldPause atomic.Pointer[worldPause]
	cancelled  runSet

	receiptFollower follower
	eventFollower   follower
	projector       *projection.Runner // nil without Config.Projector
	raised          *runevents.AlertFilter

	stop       context.CancelFunc
	background sync.WaitGroup
}

// follower is what the engine needs of a follow.Follower.
type follower interface {
	Run(ctx context.Context)
	Wait(ctx context.Context, seq uint64) error
	Restart(logEnd uint64)
	Position() uint64
}

// Open starts an engine on nc, whose account must have JetStream, and makes or updates the
// world's streams. It does not replay the log: it serves at once. Close ends it; the connections
// stay open. What is derived from the log goes over followers, which may be nc too: on a
// connection of its own it does not stand in the way of commits.
func Open(ctx context.Context, nc, followers *nats.Conn, config Config) (*Engine, error) {
	e, err := prepare(ctx, nc, config)
	if err != nil {
		return nil, err
	}
	if err := e.start(ctx, nc, followers); err != nil {
		return nil, err
	}
	return e, nil
}

// prepare makes an engine over the streams of its world, in which nothing runs yet.
func prepare(ctx context.Context, nc *nats.Conn, config Config) (*Engine, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	if err := refuseHalfRestored(ctx, js, config.World); err != nil {
		return nil, err
	}
	stream := func(c jetstream.StreamConfig) jetstream.Stream {
		if err != nil {
			return nil
		}
		var s jetstream.Stream
		s, err = openStream(ctx, js, c, config.Logger)
		return s
	}
	logStream := stream(logConfig(config.World, config.HistoryPerTown, config.DedupeRetention, config.Replicas))
	receiptStream := stream(dedupe.StreamConfig(config.World, config.DedupeRetention, config.Replicas))
	eventStream := stream(eventConfig(config.World, config.EventRetention, config.EventLimit, config.Replicas))
	markStream := stream(markConfig(config.World, config.Replicas))
	stream(deadLetterConfig(config.World, config.Replicas))
	stream(alertConfig(config.World, config.Replicas))
	if err != nil {
		return nil, err
	}
	log := &commitLog{
		world: config.World, store: &streamStore{js, logStream}, stream: logStream, maxPayload: nc.MaxPayload,
	}
	e := &Engine{
		config: config, log: log, towns: newTowns(log),
		receipts: dedupe.New(config.World, receiptStream), events: eventStream,
		raised: runevents.NewAlertFilter(0),
		marks:  &marks{world: config.World, js: js, stream: markStream},
	}
	e.mark = e.marks.put
	seq, paused, err := log.worldPause(ctx)
	if err != nil {
		return nil, err
	}
	e.worldPause.Store(&worldPause{seq, paused})
	return e, nil
}

// start opens the inbox of the plugins' answers and starts what works in the background.
func (e *Engine) start(ctx context.Context, nc, followers *nats.Conn) error {
	var err error
	if e.inbox, err = openInbox(cmp.Or(e.config.Plugins, nc), e.lateAnswer); err != nil {
		return err
	}
	if err := e.startFollowers(ctx, nc, followers); err != nil {
		e.inbox.close()
		return err
	}
	return nil
}

// startFollowers starts what works in the background until Close: the workers of the queues, the
// followers of the log, and the watch over the connection.
func (e *Engine) startFollowers(ctx context.Context, nc, followers *nats.Conn) error {
	letters, err := e.openLetters(followers)
	if err != nil {
		return err
	}
	receipts := dedupe.StreamConfig(e.config.World, e.config.DedupeRetention, e.config.Replicas)
	e.receiptFollower, err = newFollower(ctx, followers, e.config.World, follow.Config{
		Name: receipts.Name, Recreate: &receipts, Retention: e.config.DedupeRetention,
		Derive: deriveReceipts(e.config.World), Advanced: e.receipts.Followed, GiveUp: letters.keep,
		Attempts: e.config.DeliveryAttempts, LogLost: e.alertLogLost("No handoff is judged"), Logger: e.config.Logger,
	})
	if err != nil {
		return err
	}
	events := eventConfig(e.config.World, e.config.EventRetention, e.config.EventLimit, e.config.Replicas)
	e.eventFollower, err = newFollower(ctx, followers, e.config.World, follow.Config{
		Name: events.Name, Recreate: &events, Retention: e.config.EventRetention,
		Derive: deriveEvents(e.config.World), GiveUp: letters.keep,
		Attempts: e.config.DeliveryAttempts, LogLost: e.alertLogLost("No run event is told"), Logger: e.config.Logger,
	})
	if err != nil {
		return err
	}
	if e.projector, err = e.newProjector(followers); err != nil {
		return err
	}
	ctx, e.stop = context.WithCancel(context.Background())
	e.applyContext, e.stopApplying = context.WithCancel(ctx)
	e.queues = newQueues(ctx, e.config.Logger, e.config.Workers, e.config.QueuePerTown, e.config.QueueTotal)
	e.alerts.start()
	e.background.Go(func() { e.receiptFollower.Run(ctx) })
	e.background.Go(func() { e.eventFollower.Run(ctx) })
	if e.projector != nil {
		e.background.Go(func() { e.projector.Run(ctx) })
	}
	e.background.Go(func() { e.watchConnection(ctx, nc) })
	e.background.Go(func() { e.recover(ctx) })
	e.background.Go(func() { e.followSignals(ctx) })
	return nil
}

// alertLogLost returns what tells operators that a follower stands still, and what does not go on until then.
func (e *Engine) alertLogLost(what string) func(error) {
	return func(err error) {
		e.alerts.raise(runevents.Alert{
			Code: runevents.LogLost, TenantID: e.config.TenantID, ProjectID: e.config.ProjectID,
			EnvironmentID: e.config.EnvironmentID,
			Message:       what + " before handoffctl fsck --repair: " + err.Error(),
		})
	}
}

// newFollower makes the follower of a world's log into the derived stream that config names.
func newFollower(ctx context.Context, nc *nats.Conn, world string, config follow.Config) (*follow.Follower, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2048),
		jetstream.WithPublishAsyncTimeout(operationTimeout))
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	config.JetStream = js
	if config.Log, err = js.Stream(ctx, LogStream(world)); err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", LogStream(world), err)
	}
	if config.Derived, err = js.Stream(ctx, config.Name); err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", config.Name, err)
	}
	return follow.New(config), nil
}

// watchConnection forgets what a NATS server that was away may have lost: derived streams may have
// lost their tail, so nothing counts as followed until it is seen again.
func (e *Engine) watchConnection(ctx context.Context, nc *nats.Conn) {
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	for {
		select {
		case <-status:
			e.rewind(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// rewind makes the followers read their positions again. Until the log's own end is known, which
// may be lower than it was, nothing that was followed before counts.
func (e *Engine) rewind(ctx context.Context) {
	e.receiptFollower.Restart(math.MaxUint64)
	e.eventFollower.Restart(math.MaxUint64)
	e.runs.clear()
	for {
		end, err := e.log.end(ctx)
		var seq uint64
		var paused *PausedBy
		if err == nil {
			seq, paused, err = e.log.worldPause(ctx)
		}
		if err == nil {
			e.worldPause.Store(&worldPause{seq, paused})
			e.queues.wakeAll()
			e.receiptFollower.Restart(end)
			e.eventFollower.Restart(end)
			return
		}
		e.config.Logger.Warn("the log cannot be read after a reconnect; will try again", "error", err)
		if pause(ctx) != nil {
			return
		}
	}
}

// Close stops taking requests, finishes those in hand, stops the followers, and publishes the alerts
// that were raised. ctx bounds the wait for what is in hand; what is cut off was not answered. A command
// that is being applied stays pending, unless its answer comes within moments: whoever serves the world
// next goes on with it.
func (e *Engine) Close(ctx context.Context) error {
	e.applyings.stop(ctx, e.stopApplying)
	err := e.queues.drain(ctx)
	e.stop()
	e.inbox.close()
	e.background.Wait()
	e.alerts.close(ctx)
	return err
}
