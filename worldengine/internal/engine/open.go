package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/engine/logwatch"
	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/internal/store/worldsettings"
)

// Open starts an engine on nc, whose account must have JetStream, and makes or updates the world's
// streams. Requests wait while the index is being built. Close ends the engine; the connections
// stay open. Alerts, live messages and the bus use publishConn, which may be nc; a connection of
// their own keeps them from delaying commits.
//
// Open opens the storage of the world, assembles the parts of the engine over it, and starts them.
func Open(ctx context.Context, nc, publishConn *nats.Conn, config Config) (*Engine, error) {
	stored, err := openStorage(ctx, nc, publishConn, config)
	if err != nil {
		return nil, err
	}
	return start(ctx, stored)
}

// storage is the opened storage of a world, with the configuration that counts for it.
type storage struct {
	config      Config
	conn        *nats.Conn
	publishConn *nats.Conn
	js          jetstream.JetStream // of conn
	log         *records.Log        // reports to nobody yet: see connectLog
	index       *samples.SampledIndex
	alerts      *alerts.Alerts
	replicas    *logwatch.Replicas
	outbox      *outbox.Relay // nil without Config.Outbox
}

// openStorage opens the storage of a world. The index comes last, since it alone has to be closed.
func openStorage(ctx context.Context, nc, publishConn *nats.Conn, config Config) (s *storage, err error) {
	settings := config.Settings
	s = &storage{conn: nc, publishConn: publishConn}
	if s.config, err = config.withDefaults(); err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(nc); err != nil {
		return nil, fmt.Errorf("engine: JetStream: %w", err)
	}
	if err := commitlog.CheckRestored(ctx, s.js, s.config.World); err != nil {
		return nil, err
	}
	s.replicas = logwatch.CheckReplicas(ctx, s.js, s.config.World, s.config.Logger)
	stream, isNew, err := openLog(ctx, s.js, &s.config, settings)
	if err != nil {
		return nil, err
	}
	s.log = s.newLog(stream)
	if err := s.openAlerts(ctx, isNew); err != nil {
		return nil, err
	}
	if err := s.openOutbox(); err != nil {
		return nil, err
	}
	return s, s.openIndex(ctx)
}

// openLog opens or makes the log of the world, and sets the settings to serve with.
func openLog(
	ctx context.Context, js jetstream.JetStream, config *Config, settings worldsettings.Settings,
) (stream jetstream.Stream, isNew bool, err error) {
	races := commitlog.Log{Jitter: config.jitter}
	err = races.RetryLostRaces(ctx, func() error {
		plan, err := worldsettings.PlanToServe(ctx, js, config.World, settings, config.Storage.DiscardHistory)
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

// newLog returns the log of a stream.
func (s *storage) newLog(stream jetstream.Stream) *records.Log {
	c := &s.config
	log := &records.Log{Log: &commitlog.Log{
		World: c.World, Stream: stream, Store: commitlog.NewStore(s.js, stream, c.Storage.GroupCommits),
		MaxPayload: s.conn.MaxPayload, Jitter: c.jitter, Now: c.Now,
	}, Retention: c.Storage.AppendedRetention}
	if c.Storage.Disk != nil {
		log.CheckStorage = c.Storage.Disk.Check
	}
	if c.Metrics != nil {
		log.OnAppendTried = c.Metrics.AppendTried
	}
	if log.Continuity.Connection = c.Dials; c.Dials == nil {
		log.Continuity.Connection = func() uint64 { return s.conn.Stats().Reconnects + s.publishConn.Stats().Reconnects }
	}
	if c.Storage.Index != nil { // the index may have followed an earlier log
		log.Continuity.Suspect()
	}
	return log
}

// openAlerts opens or makes the stream of alerts. Alerts may be raised from then on; they are published once they are
// started.
func (s *storage) openAlerts(ctx context.Context, isNew bool) error {
	c := &s.config
	stream := alerts.AlertConfig(c.World, c.Storage.Replicas)
	err := commitlog.RetryTransient(ctx, func(ctx context.Context) error {
		_, err := s.js.Stream(ctx, stream.Name)
		return err
	})
	// A start that was cut off leaves a log without alerts, and with nothing else than the settings.
	lost := !isNew && errors.Is(err, jetstream.ErrStreamNotFound) && s.log.Stream.CachedInfo().State.LastSeq > 1
	if _, err = commitlog.OpenStream(ctx, s.js, stream, c.Logger); err != nil {
		return err
	}
	js, err := jetstream.New(s.publishConn)
	if err != nil {
		return fmt.Errorf("engine: JetStream: %w", err)
	}
	s.alerts = alerts.New(js, c.alerts(commitlog.Identity(s.log.Stream.CachedInfo().Config)))
	if lost {
		s.alerts.Raise(alerts.AlertsLost.Alert(alerts.About{}, "{stream}", stream.Name))
	}
	return nil
}

// openOutbox makes the relay of the bus, if the world has one.
func (s *storage) openOutbox() (err error) {
	c := &s.config
	if c.Outbox.Enabled {
		s.outbox, err = outbox.New(outbox.Config{
			Conn: s.publishConn, World: c.World, Replicas: c.Storage.Replicas, Retention: c.Outbox.Retention,
			Limit: c.Outbox.Limit, Attempts: c.Outbox.Attempts, Raise: s.alerts.Raise, Logger: c.Logger,
		})
	}
	return err
}
