package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"worldengine/worldengine"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/lease"
	"worldengine/worldengine/service"
)

const (
	// followEvery is how often the index of a server that stands by reads the log.
	followEvery = 500 * time.Millisecond
	// withdrawWithin bounds how long a server that lost the lease waits for requests in hand.
	withdrawWithin = time.Second
)

// tenure is a time in which the server serves the world.
type tenure struct {
	held      *lease.Held // nil if no other server can join
	created   int         // towns of the world file
	engine    *worldengine.Engine
	service   *service.Service
	answering *nats.Conn // answers in the clients' account; nil if no requests are taken there
}

// Serving reports whether the server answers requests. Otherwise it stands by, or ends.
func (s *Server) Serving() bool { return s.serving.Load() != nil }

// Changed returns a channel that gets an element after each change of Serving since Start. Changes
// that are not read yet share one element.
func (s *Server) Changed() <-chan struct{} { return s.changed }

// Engine returns the engine; nil while the server stands by.
func (s *Server) Engine() *worldengine.Engine {
	if t := s.serving.Load(); t != nil {
		return t.engine
	}
	return nil
}

// Created returns how many towns of the world file were created when the server began to serve.
func (s *Server) Created() int {
	if t := s.serving.Load(); t != nil {
		return t.created
	}
	return 0
}

// begin serves the world or, if another server serves it, stands by in the background. The server
// of an embedded NATS takes the lease from any server that has joined.
func (s *Server) begin(ctx context.Context) error {
	if s.embedded != nil && !s.config.Open {
		return s.takeOver(ctx, nil)
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return fmt.Errorf("server: JetStream: %w", err)
	}
	s.config.Service.ID = nuid.Next()
	if err := s.hearStandbys(); err != nil {
		return err
	}
	s.lease = &lease.Lease{
		JetStream: js, World: s.config.Engine.World, Holder: s.config.Service.ID,
		Replicas: s.config.Engine.Replicas, Logger: s.config.Logger,
	}
	take := s.lease.Try
	if s.embedded != nil {
		take = s.lease.Seize
	}
	var held *lease.Held
	err = commitlog.UntilItPasses(ctx, func(ctx context.Context) (err error) {
		held, err = take(ctx)
		return err
	})
	switch {
	case err == nil:
		err = s.takeOver(ctx, held)
	case errors.Is(err, lease.ErrHeld):
		err = s.mayServe(ctx, js)
	}
	if err != nil {
		return err
	}
	s.idle.Store(&errStandby)
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.ended.Go(func() { s.alternate(ctx, js) })
	return nil
}

// mayServe returns an error if the server, which begins to stand by, could not serve the world later.
func (s *Server) mayServe(ctx context.Context, js jetstream.JetStream) error {
	c := s.config.Engine
	plan, err := commitlog.PlanSettings(ctx, js, c.World, c.Settings)
	if err == nil {
		err = plan.Refusal(c.World, c.DiscardHistory)
	}
	if err != nil {
		return err
	}
	if !plan.New && len(plan.Differences) == 0 {
		s.forgetSettings()
	}
	c.Settings = plan.Settings
	_, err = s.config.checkWorld(c)
	return err
}

// forgetSettings makes the server take the world's settings from now on, which may change.
func (s *Server) forgetSettings() {
	s.config.Engine.Settings, s.config.Engine.DiscardHistory = commitlog.Settings{}, false
}

// alternate runs until ctx ends. It stands by while another server holds the lease, and serves
// while this one does.
func (s *Server) alternate(ctx context.Context, js jetstream.JetStream) {
	for ctx.Err() == nil {
		t := s.serving.Load()
		if t == nil {
			s.standBy(ctx, js)
			continue
		}
		select {
		case <-t.held.Lost():
			s.withdraw(ctx, t)
		case <-ctx.Done():
		}
	}
}

// standBy follows the log until the lease is free, and takes over.
func (s *Server) standBy(ctx context.Context, js jetstream.JetStream) {
	var following sync.WaitGroup
	until, stop := context.WithCancel(ctx)
	following.Go(func() { s.follow(until, js) })
	held, err := s.lease.Acquire(ctx)
	stop()
	following.Wait()
	if err == nil {
		s.config.Logger.Info("this server takes over: it is the writer of the world now")
		err = s.takeOver(ctx, held)
	}
	switch {
	case err == nil:
		s.idle.Store(&errStandby)
		s.tellChange()
	case ctx.Err() == nil:
		refused := fmt.Errorf("standby: the world cannot be served: %w", err)
		s.idle.Store(&refused)
		s.config.Logger.Error("this server cannot take over, and stands by", "error", err)
		_ = backoff.Sleep(ctx, lease.TTL) // another server may try
	}
}

// follow makes the index follow the log until ctx ends. If there is no index, follow opens one as
// soon as there is a log.
func (s *Server) follow(ctx context.Context, js jetstream.JetStream) {
	since := time.Now().UTC()
	for {
		s.tellStandby(since)
		var err error
		if x := s.index.Load(); x != nil {
			_, err = x.Sync(ctx)
		} else {
			err = s.openIndex(ctx, js)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, commitlog.ErrNoWorld) {
			s.config.Logger.Warn("the log cannot be followed; will try again", "error", err)
		}
		if backoff.Sleep(ctx, followEvery) != nil {
			return
		}
	}
}

// openIndex opens an index of the log, in memory only.
func (s *Server) openIndex(ctx context.Context, js jetstream.JetStream) error {
	log, err := commitlog.OpenReader(ctx, js, s.config.Engine.World)
	if err != nil {
		return err
	}
	x, err := index.Open(ctx, index.Config{World: log.World, Source: index.LogSource(log),
		Logger: s.config.Logger})
	if err == nil {
		s.index.Store(x)
	}
	return err
}

// takeOver starts to serve the world. If it fails, the lease is given back.
func (s *Server) takeOver(ctx context.Context, held *lease.Held) error {
	t := &tenure{held: held}
	if err := s.startTenure(ctx, t); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawWithin)
		defer cancel()
		_ = s.finish(ctx, t) // no request was taken, so there is none to finish
		return err
	}
	s.serving.Store(t)
	return nil
}

// startTenure starts the engine and its service.
func (s *Server) startTenure(ctx context.Context, t *tenure) error {
	ofEngine, ofService := s.config.Engine, s.config.Service
	ofEngine.Index, ofEngine.Dials = s.index.Load(), s.dials.Load
	if t.held != nil {
		// Each tenure has its own queue group, so a suspended server and its successor get the same
		// requests. The suspended server drops them.
		ofService.Serves, ofService.QueueGroup = t.held.Valid, "writer-"+nuid.Next()
		ofEngine.Leased = t.held.Valid
	}
	file, err := s.config.worldFile()
	if err != nil {
		return err
	}
	t.engine, err = worldengine.Open(ctx, s.conn, s.followers, ofEngine)
	if err != nil {
		return err
	}
	if s.embedded != nil { // the engine may have made streams
		if err := s.embedded.sync(); err != nil {
			return err
		}
	}
	s.forgetSettings()     // they are the world's now
	if s.embedded == nil { // a later tenure notices by this index that the log lost records
		s.index.Store(t.engine.KeepIndex())
	}
	if file != nil {
		if t.created, err = t.engine.LoadWorld(ctx, file); err != nil {
			return s.config.inWorldFile(err)
		}
	}
	return s.serve(t, ofService)
}

// serve takes requests in the world's account and, if an embedded NATS has an account for clients
// without credentials, in that account. With access control the requests of clients cross to the
// world's account, and NATS marks them with their user on the way.
func (s *Server) serve(t *tenure, config service.Config) (err error) {
	entrances := []service.Entrance{{Replies: s.conn}}
	purposes := []purpose{requesting}
	if s.config.anonymousClients() {
		if t.answering, err = s.connect(answering, nil); err != nil {
			return err
		}
		entrances = append(entrances, service.Entrance{Replies: t.answering})
		purposes = append(purposes, requestingClients)
	}
	for i := range entrances {
		in := &entrances[i]
		in.Intake = new(service.Intake)
		if in.Requests, err = s.connect(purposes[i], in.Intake); err != nil {
			for _, other := range entrances[:i] {
				other.Requests.Close()
			}
			return err
		}
	}
	t.service, err = service.Serve(entrances, t.engine, config)
	return err
}

// withdraw ends a tenure whose lease was lost.
func (s *Server) withdraw(ctx context.Context, t *tenure) {
	s.config.Logger.Warn("the writer's lease is lost: another server may serve, this one stands by")
	s.serving.Store(nil)
	s.tellChange()
	ctx, cancel := context.WithTimeout(ctx, withdrawWithin)
	defer cancel()
	if err := s.finish(ctx, t); err != nil && ctx.Err() == nil {
		s.config.Logger.Warn("requests in hand were left to the next writer", "error", err)
	}
}

func (s *Server) tellChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// finish ends a tenure, even one that began only in part. It stops taking requests, finishes and
// answers those in hand, and gives the lease back. ctx bounds the wait.
func (s *Server) finish(ctx context.Context, t *tenure) (err error) {
	if t.service != nil {
		err = t.service.Stop(ctx)
	}
	if t.engine != nil {
		err = errors.Join(err, t.engine.Close(ctx))
	}
	// The last answers must have left before the connections go.
	for _, nc := range []*nats.Conn{s.conn, t.answering} {
		if nc == nil {
			continue
		}
		if flushErr := nc.FlushWithContext(ctx); flushErr != nil {
			err = errors.Join(err, fmt.Errorf("server: last answers: %w", flushErr))
		}
	}
	if t.answering != nil {
		t.answering.Close()
	}
	if t.held != nil {
		t.held.Release(ctx)
	}
	return err
}
