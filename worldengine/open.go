package worldengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/game"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/storage"
	"worldengine/worldengine/wire"
)

// Open starts an engine on nc, whose account must have JetStream, and makes or updates the
// world's streams. Requests wait for the index if it has to be built. Close ends the engine; the
// connections stay open. Alerts, live messages and the bus go over followers, which may be nc too:
// on a connection of their own they do not stand in the way of commits.
func Open(ctx context.Context, nc, followers *nats.Conn, config Config) (*Engine, error) {
	e, err := prepare(ctx, nc, config)
	if err != nil {
		return nil, err
	}
	if err := e.start(ctx, nc, followers); err != nil {
		return nil, errors.Join(err, e.closeIndex())
	}
	return e, nil
}

// closeIndex closes the index, unless Config has it.
func (e *Engine) closeIndex() error {
	if e.config.Index != nil {
		return nil
	}
	return e.index.Close()
}

// prepare makes an engine over the streams of its world, in which nothing runs yet.
func prepare(ctx context.Context, nc *nats.Conn, config Config) (*Engine, error) {
	given, err := config.Settings().Checked()
	if err != nil {
		return nil, err
	}
	if config, err = config.withDefaults(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	if err := commitlog.RefuseHalfRestored(ctx, js, config.World); err != nil {
		return nil, err
	}
	settings, err := commitlog.AgreeSettings(ctx, js, config.World, given, config.DiscardHistory)
	if err != nil {
		return nil, err
	}
	if config = config.withSettings(settings); config.Apply == apply.RCON && config.RCON == nil {
		return nil, errors.New("worldengine: the world's setting apply is rcon, which takes a " +
			"console: give --rcon-config FILE, or another --apply with --discard-history")
	}
	stream, err := commitlog.OpenWorldLog(ctx, js, config.World, settings,
		config.Replicas, config.Logger)
	if err != nil {
		return nil, err
	}
	if _, err := commitlog.OpenStream(ctx, js, alerts.AlertConfig(config.World, config.Replicas),
		config.Logger); err != nil {
		return nil, err
	}
	log := &commitlog.Log{
		World: config.World, Stream: stream,
		Store:      commitlog.NewStore(js, stream, config.GroupCommits),
		MaxPayload: nc.MaxPayload, Retention: config.AppendedRetention,
		Draw: config.draw, Now: config.Now,
	}
	if config.Disk != nil {
		log.MayStore = config.Disk.Check
	}
	if config.Metrics != nil {
		log.Committed = config.Metrics.Commit
	}
	if config.Known != nil {
		log.Known.Adopt(config.Known)
	}
	e := &Engine{
		config: config, js: js, log: log, towns: commitlog.NewTowns(log),
		cancelled: newCancelled(),
	}
	if err := e.openIndex(ctx); err != nil {
		return nil, err
	}
	e.readRuns()
	return e, nil
}

// start assembles the engine and starts its work in the background, which lasts until Close.
func (e *Engine) start(ctx context.Context, nc, followers *nats.Conn) error {
	js, err := jetstream.New(followers)
	if err != nil {
		return fmt.Errorf("worldengine: JetStream: %w", err)
	}
	seq, paused, err := e.log.WorldPause(ctx)
	if err != nil {
		return err
	}
	e.alerts = alerts.New(js, e.config.alerts())
	e.router, err = game.OpenInbox(cmp.Or(e.config.Plugins, nc), e.alerts)
	if err != nil {
		return err
	}
	if e.config.Bus {
		if e.bus, err = bus.New(e.busConfig(followers)); err != nil {
			e.router.Close()
			return err
		}
	}
	ctx, e.stop = context.WithCancel(context.Background())
	e.queue = newQueue(ctx, &e.config)
	e.assemble(ctx, game.Pause{Seq: seq, By: paused}, e.alerts)
	e.raiseLost()
	e.follow(js, nc, followers)
	e.alerts.Start()
	recall := e.absent.Recall(e.alerts.List)
	e.background.Go(func() { recall(ctx) })
	e.background.Go(func() { e.absent.Watch(ctx, e.needsPlugin) })
	e.background.Go(func() { e.feed.Run(ctx) })
	if e.bus != nil {
		e.background.Go(func() { e.bus.Run(ctx) })
	}
	if e.projector != nil {
		e.background.Go(func() { e.project(ctx) })
	}
	e.background.Go(func() { e.watchLog(ctx, nc) })
	e.background.Go(func() { e.resume(ctx) })
	e.background.Go(func() { e.reapWaiting(ctx) })
	e.background.Go(func() { e.games.Watch(ctx) })
	e.background.Go(func() { e.watchStorage(ctx) })
	return nil
}

// follow has the index, the feed and the projector follow the commits of this engine.
func (e *Engine) follow(js jetstream.JetStream, nc, followers *nats.Conn) {
	e.log.Known.Connection = func() uint64 {
		return nc.Stats().Reconnects + followers.Stats().Reconnects
	}
	e.feed = e.newFeed(js, followers)
	if e.config.Projector {
		e.projector = e.newProjector()
	}
	e.log.Appended = func(seq uint64, msg *nats.Msg) {
		e.index.Put(seq, msg.Subject, msg.Header)
		e.feed.Appended(seq, msg)
		if e.projector != nil && commitlog.Kind(msg.Header.Get(wire.KindHeader)) ==
			commitlog.KindEvents {
			e.projector.Kick()
		}
	}
}

func newQueue(ctx context.Context, config *Config) *queue.Queue {
	return queue.New(ctx, queue.Config{
		Workers: config.Workers, PerTown: config.QueuePerTown,
		Total: config.QueueTotal, Logger: config.Logger,
	})
}

// watchStorage alerts operators that nothing is stored any more, and that something is again: with
// a disk of its own also if that began before the engine did.
func (e *Engine) watchStorage(ctx context.Context) {
	var since time.Time
	if e.config.Disk != nil {
		since = e.alerts.StorageFailedSince(ctx)
	}
	storage.Watch(ctx, pollPause, !since.IsZero(), e.log.Full, func(err error) {
		if err == nil {
			e.alerts.Raise(alerts.StorageRecovered.About(alerts.About{},
				"{since}", runevents.Timestamp(since)))
			return
		}
		since = e.config.Now()
		e.alerts.Raise(alerts.StorageFailed.About(alerts.About{},
			"{error}", strings.TrimSuffix(wire.Sentence(err), ".")))
	})
}

// ensureInTurn has the command applied that is pending in a town, in the town's turn: a delivery of
// this writer that has just committed it has done so before, with its client.
func (e *Engine) ensureInTurn(townID string) error {
	return e.queue.SubmitUpkeep(townID, func(ctx context.Context) {
		current, err := e.log.Load(ctx, townID)
		if err == nil && current.Pending != nil {
			err = e.games.Ensure(townID, current, nil)
		}
		if err != nil && ctx.Err() == nil {
			e.config.Logger.Error("a pending command cannot be resumed", "town",
				townID, "error", err)
		}
	})
}

// watchLog looks at the log whenever nc is connected again, or the log seems to be another one,
// until ctx is done: NATS may have lost messages meanwhile. It reads the pause of the world again
// now and then, since a signal that got no answer may be stored.
func (e *Engine) watchLog(ctx context.Context, nc *nats.Conn) {
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	for {
		select {
		case <-status:
		case <-e.log.Known.Doubted():
		case <-time.After(rereadPause):
			_ = e.worldPause.Reread(ctx) // or the next time
			continue
		case <-ctx.Done():
			return
		}
		e.runs.Forget()
		e.towns.Clear()
		e.findLog(ctx)
	}
}

// rereadPause is how often the pause of the world is read again.
const rereadPause = 5 * time.Second

// findLog checks the log until it is the known one. As long as it has lost messages nothing is
// committed, and an alert says so.
func (e *Engine) findLog(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.log.Known.Check(ctx, e.log.Stream)
		switch {
		case errors.Is(err, commitlog.ErrLogLost):
			if e.logLost.Swap(&err) == nil {
				e.config.Logger.Error("LOG_LOST: nothing is committed", "error", err)
				e.alerts.Raise(alerts.LogLost.About(alerts.About{},
					"{effect}", "Nothing is committed", "{error}", wire.Sentence(err)))
			}
		case err == nil:
			if err = e.worldPause.Reread(ctx); err == nil {
				e.logLost.Store(nil)
				return
			}
			fallthrough
		default:
			e.config.Logger.Warn("the log cannot be read after a reconnect; will try again",
				"error", err)
		}
		_ = backoff.Sleep(ctx, pollPause)
	}
}

// Close refuses requests, finishes those in hand, stops the background work, and publishes the alerts
// that were raised. ctx bounds the wait for requests in hand; one that is cut off gets no answer. A
// command that a game is applying stays pending, unless its answer comes within moments: the next
// server of the world goes on with it.
func (e *Engine) Close(ctx context.Context) error {
	e.games.Stop(ctx)
	err := e.queue.Drain(ctx)
	e.stop()
	e.router.Close()
	e.background.Wait()
	e.alerts.Close(ctx)
	return errors.Join(err, e.closeIndex())
}

// newProjector returns the projector of the runs that others append to: see ADR 24.
func (e *Engine) newProjector() *runs.Projector {
	file := ""
	if e.config.IndexDir != "" {
		file = filepath.Join(e.config.IndexDir, "projected")
	}
	return e.runs.Projector(file, e.config.Now)
}

// project projects run events until ctx is done. It raises nothing again that the stream of alerts
// has.
func (e *Engine) project(ctx context.Context) {
	if e.alerts.Recall(ctx) == nil {
		e.projector.Run(ctx)
	}
}
