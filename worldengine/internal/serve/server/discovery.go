package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
)

// Times of looking for worlds.
const (
	// lookInterval is the pause between two looks for worlds if no advisory says that there is a new one:
	// an advisory can be lost.
	lookInterval = 30 * time.Second
	// lookDelay is the pause between an advisory and the look: worlds may come in numbers.
	lookDelay = 100 * time.Millisecond
	// lookTimeout bounds a look.
	lookTimeout = 10 * time.Second
)

// watchWorlds makes a server of several worlds serve the worlds of the NATS that it may serve, also
// those that are made later, or made anew after their removal. NATS says in advisories which streams
// are made and deleted.
func (s *Server) watchWorlds(ctx context.Context) error {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return fmt.Errorf("server: JetStream: %w", err)
	}
	changed := make(chan struct{}, 1)
	for _, change := range []string{
		natsserver.JSAdvisoryStreamCreatedPre, natsserver.JSAdvisoryStreamDeletedPre,
	} {
		_, err := s.conn.Subscribe(change+".*", func(msg *nats.Msg) {
			if _, ok := layout.LogWorld(msg.Subject[len(change)+1:]); ok {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		})
		if err != nil {
			return fmt.Errorf("server: changes of streams: %w", err)
		}
	}
	err = commitlog.RetryTransient(ctx, func(ctx context.Context) error { return s.findWorlds(ctx, js) })
	if err != nil {
		return err
	}
	ctx, s.stopDiscovery = context.WithCancel(context.WithoutCancel(ctx))
	s.discovery.Go(func() {
		for s.awaitLook(ctx, changed) {
			bounded, cancel := context.WithTimeout(ctx, lookTimeout)
			err := s.findWorlds(bounded, js)
			cancel()
			if err != nil && ctx.Err() == nil {
				s.config.Logger.Warn("the worlds of NATS cannot be listed; will try again", "error", err)
			}
		}
	})
	return nil
}

// awaitLook waits until it is time to look for worlds. It returns false when ctx ends.
func (s *Server) awaitLook(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
	case <-time.After(lookInterval):
	case <-ctx.Done():
	}
	return backoff.Sleep(ctx, lookDelay) == nil
}

// findWorlds starts the worlds that the server does not have yet, and drops those that are gone. It
// keeps a world that it serves: a log that is lost is no world that was removed.
func (s *Server) findWorlds(ctx context.Context, js jetstream.JetStream) error {
	found := map[string]bool{}
	stored, err := storedIn(ctx, js)
	if err != nil {
		return err
	}
	for _, world := range stored {
		found[world] = true
	}
	before := s.Worlds()
	for world := range found {
		if s.mayHost(world) && s.worlds.get(world) == nil && !s.manager.isRemoving(world) {
			if _, err := s.host(world, worldsettings.Settings{}, false); err != nil {
				s.config.Logger.Error("a world cannot be started", "world", world, "error", err)
			}
		}
	}
	for _, h := range s.worlds.all() {
		if !found[h.world] && !h.named && h.existed.Load() && h.serving.Load() == nil {
			s.drop(h)
		}
	}
	if !slices.Equal(before, s.Worlds()) {
		return s.setWorlds(s.Worlds)
	}
	return nil
}

// mayHost reports whether the server serves a world of a name, if there is one.
func (s *Server) mayHost(world string) bool {
	return s.config.Worlds.All || slices.Contains(s.config.Worlds.Names, world)
}

// storedIn returns the worlds that have a log in a NATS.
func storedIn(ctx context.Context, js jetstream.JetStream) (worlds []string, err error) {
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if world, ok := layout.LogWorld(name); ok {
			worlds = append(worlds, world)
		}
	}
	return worlds, names.Err()
}
