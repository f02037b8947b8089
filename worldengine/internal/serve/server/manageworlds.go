package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/streamdirs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

const (
	// changeTimeout bounds the creation or removal of a world.
	changeTimeout = time.Minute
	// pluginsTimeout bounds how long a removal waits for plugins that may be connected.
	pluginsTimeout = 500 * time.Millisecond
)

// errRemoved: the world was removed while this server served it, or stood by for it.
var errRemoved = errors.New("the world was removed")

// manageWorlds begins to answer the verbs about worlds, and to hear of worlds that are removed.
func (s *Server) manageWorlds(context.Context) error {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return fmt.Errorf("server: JetStream: %w", err)
	}
	s.manager = &manager{server: s, js: js}
	_, err = s.conn.Subscribe(layout.RemovedSubject("*"), func(msg *nats.Msg) {
		h := s.worlds.get(string(msg.Data))
		if h != nil && h.serving.Load() == nil { // else it would make the world anew
			go s.drop(h)
		}
	})
	if err == nil {
		err = s.manager.hearCreations()
	}
	if err == nil {
		_, err = s.service.OpenWorlds(s.manager)
	}
	if err != nil {
		return fmt.Errorf("server: verbs about worlds: %w", err)
	}
	return nil
}

// exists reports whether NATS has a world, or a restore of it that is unfinished.
func (m *manager) exists(ctx context.Context, world string) (bool, error) {
	for _, name := range []string{layout.LogStream(world), layout.RestoringStream(world)} {
		_, err := m.js.Stream(ctx, name)
		if err == nil || !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

// Remove implements service.Worlds. The writer of the world removes it, or else this server, which
// acquires the lease first.
func (m *manager) Remove(ctx context.Context, request messages.WorldsRemove) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	world, s := request.World, m.server
	if h := s.worlds.get(world); h != nil && h.serving.Load() != nil {
		return m.removeServed(ctx, h, request.Force)
	}
	exists, err := m.exists(ctx, world)
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("%w: %s; handoffctl world list has the worlds", service.ErrUnknownWorld, world)
	}
	asked := &nats.Msg{Subject: layout.RemoveSubject(world), Header: nats.Header{}}
	if request.Force {
		asked.Header.Set(forceHeader, "true")
	}
	answer, err := s.conn.RequestMsgWithContext(ctx, asked)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return m.removeUnserved(ctx, world)
	case err != nil:
		return fmt.Errorf("%w: its writer did not answer the request to remove it: %w",
			service.ErrWorldNotServed, err)
	}
	return failureIn(answer, "the writer of the world could not remove it")
}

// forceHeader is in a request to the writer of a world that forces the removal.
const forceHeader = "Force"

// subscribeRemoval has the writer of a world answer requests of other servers to remove it.
func (h *hosted) subscribeRemoval() (*nats.Subscription, error) {
	m := h.server.manager
	return h.server.conn.Subscribe(layout.RemoveSubject(h.world), func(msg *nats.Msg) {
		go func() { // since removing ends the subscription
			ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
			defer cancel()
			answer := &nats.Msg{Subject: msg.Reply, Header: nats.Header{}}
			addFailure(answer, m.removeServed(ctx, h, msg.Header.Get(forceHeader) != ""))
			_ = h.server.conn.PublishMsg(answer)
		}()
	})
}

// removeServed removes a world that this server serves.
func (m *manager) removeServed(ctx context.Context, h *hosted, force bool) error {
	if !force {
		if err := m.requireUnused(ctx, h); err != nil {
			return err
		}
	}
	s := m.server
	if _, removing := s.removing.LoadOrStore(h.world, true); removing {
		return errRemoving(h.world)
	}
	defer s.removing.Delete(h.world)
	if s.worlds.get(h.world) != h { // the world may have been made anew
		return fmt.Errorf("%w: %s was removed", service.ErrUnknownWorld, h.world)
	}
	s.forget(h)
	held, err := h.retire(ctx)
	if err != nil {
		h.logger.Warn("requests in hand were cut off by the removal of the world", "error", err)
	}
	err = m.delete(ctx, h.world, held)
	s.noteChange()
	return errors.Join(err, s.setWorlds(s.Worlds))
}

// requireUnused returns ErrWorldInUse if the world has unanswered requests or connected plugins.
func (m *manager) requireUnused(ctx context.Context, h *hosted) error {
	if t := h.serving.Load(); t != nil {
		stats := t.engine.Stats()
		if n := max(t.service.Overload().Held, stats.Unfinished+stats.Applying); n > 0 {
			return fmt.Errorf("%w: %d of its requests are in hand: pause the world and wait, or force the "+
				"removal", service.ErrWorldInUse, n)
		}
	}
	connected, err := m.pluginConnected(ctx, h)
	if err != nil {
		return err
	}
	if connected {
		return fmt.Errorf("%w: a plugin is connected that applies its commands: stop the plugin, or force "+
			"the removal", service.ErrWorldInUse)
	}
	return nil
}

// pluginConnected reports whether a plugin of a world is connected. An existing NATS does not tell its
// clients, so plugins are asked as they ask each other.
func (m *manager) pluginConnected(ctx context.Context, h *hosted) (bool, error) {
	s := m.server
	if s.embedded != nil {
		clients, err := s.embedded.Clients(h.world, s.config.Service.Access, nil)
		return slices.ContainsFunc(clients, func(c messages.Client) bool {
			return c.Connections > 0 && len(c.Towns) > 0
		}), err
	}
	nc := s.conn
	if s.config.Access != nil {
		var err error
		if nc, err = s.connect(probing, nil); err != nil {
			return false, err
		}
		defer nc.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, pluginsTimeout)
	defer cancel()
	_, err := nc.RequestWithContext(ctx, wire.HostsSubject(h.world, wire.AllTownsToken), nil)
	return !errors.Is(err, nats.ErrNoResponders), nil
}

// removeUnserved removes a world that no server serves.
func (m *manager) removeUnserved(ctx context.Context, world string) error {
	s := m.server
	if _, removing := s.removing.LoadOrStore(world, true); removing {
		return errRemoving(world)
	}
	defer s.removing.Delete(world)
	if h := s.worlds.get(world); h != nil {
		s.drop(h)
	}
	var held *lease.Lease
	if s.placer != nil {
		l := &lease.Elector{
			JetStream: m.js, World: world, Holder: s.config.Service.ID, Replicas: s.config.Engine.Storage.Replicas,
			Logger: s.config.Logger,
		}
		var err error
		if held, err = l.Try(ctx); err != nil {
			return fmt.Errorf("%w: a server has just acquired its lease; try again: %w",
				service.ErrWorldNotServed, err)
		}
	}
	// Another server may have removed the world in the meantime, and a new one may have its name.
	exists, err := m.exists(ctx, world)
	if err == nil && exists {
		err = m.delete(ctx, world, held)
	}
	if held != nil {
		held.Release(ctx)
	}
	return errors.Join(err, s.setWorlds(s.Worlds))
}

// isRemoving reports whether this server is removing a world.
func (m *manager) isRemoving(world string) bool {
	_, removing := m.server.removing.Load(world)
	return removing
}

// errRemoving says that this server is removing a world: until it is done, nobody else may remove the
// world, or make it anew.
func errRemoving(world string) error {
	return fmt.Errorf("%w: %s is being removed; try again", service.ErrWorldNotServed, world)
}

// delete deletes the index of a world, its streams and its lease. The log MUST go last but for the lease:
// until then the world exists, and the removal can be repeated. An index that outlived its log would
// miss the records of that log in a new world of the name.
func (m *manager) delete(ctx context.Context, world string, held *lease.Lease) error {
	s := m.server
	err := s.conn.Publish(layout.RemovedSubject(world), []byte(world))
	if err == nil {
		err = s.conn.FlushWithContext(ctx)
	}
	if err == nil && s.embedded != nil {
		err = os.RemoveAll(filepath.Join(s.config.Embedded.Data, "index", world))
	}
	streams := append(slices.DeleteFunc(streamdirs.Names(world), func(name string) bool {
		return name == layout.LogStream(world) || name == streamdirs.LeaseStream(world)
	}), layout.LogStream(world))
	for _, name := range streams {
		if err == nil && held != nil && !held.Valid() { // this process was suspended
			err = errors.New("another server may have become its writer")
		}
		if err == nil {
			err = ignoreMissing(m.js.DeleteStream(ctx, name))
		}
	}
	if held != nil {
		held.Release(ctx)
	}
	if err == nil {
		err = ignoreMissing(m.js.DeleteStream(ctx, streamdirs.LeaseStream(world)))
	}
	if err != nil {
		return fmt.Errorf("server: the world %s is not removed yet; try again: %w", world, err)
	}
	s.config.Worlds.Backlogs.forget(world)
	if s.metrics != nil {
		s.metrics.Remove(world)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// retire ends a world that is being removed, but keeps its lease, which is returned. Requests in hand
// are finished until ctx ends.
func (h *hosted) retire(ctx context.Context) (held *lease.Lease, err error) {
	h.stop()
	h.ended.Wait()
	if t := h.serving.Swap(nil); t != nil {
		held, t.lease = t.lease, nil
		bounded, cancel := context.WithTimeout(ctx, DefaultDrainTimeout)
		defer cancel()
		err = h.finish(bounded, t)
	}
	return held, errors.Join(err, h.close(ctx))
}
