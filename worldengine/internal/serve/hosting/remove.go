package hosting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/streamdirs"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

const (
	// retireTimeout bounds how long a removal waits for unanswered requests.
	retireTimeout = 20 * time.Second
	// pluginsTimeout bounds how long a removal waits for plugins that may be connected.
	pluginsTimeout = 5 * time.Second
)

// Remove implements service.WorldManager. The writer of the world removes it, or else this server, which
// acquires the lease first.
func (ws *Worlds) Remove(ctx context.Context, request messages.WorldsRemove) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if w := ws.get(request.World); w != nil && w.tenure() != nil {
		return w.removeServed(ctx, request.Force)
	}
	exists, err := ws.exists(ctx, request.World)
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("%w: %s; handoffctl world list has the worlds", service.ErrUnknownWorld, request.World)
	}
	asked := &nats.Msg{Subject: layout.RemoveSubject(request.World), Header: nats.Header{}}
	if request.Force {
		asked.Header.Set(forceHeader, "true")
	}
	_, err = ws.askPeer(ctx, asked,
		"its writer did not answer the request to remove it", "the writer of the world could not remove it")
	if errors.Is(err, nats.ErrNoResponders) {
		return ws.removeOnce(request.World, func() error { return ws.removeUnserved(ctx, request.World) })
	}
	return err
}

// forceHeader is in a request to the writer of a world that forces the removal.
const forceHeader = "Force"

// subscribeRemoval has the writer of a world answer requests of other servers to remove it.
func (w *World) subscribeRemoval() (*nats.Subscription, error) {
	return w.worlds.shared.Conn.Subscribe(layout.RemoveSubject(w.name), func(msg *nats.Msg) {
		w.worlds.answer(msg, func(ctx context.Context) ([]byte, error) {
			return nil, w.removeServed(ctx, msg.Header.Get(forceHeader) != "")
		})
	})
}

// removeOnce removes a world unless this server is removing it already, and then renews the permissions of users.
// The mark MUST stand from before the world is forgotten until its log is deleted: until then a search for worlds
// finds the log, and would start the world again.
func (ws *Worlds) removeOnce(world string, remove func() error) error {
	if _, removing := ws.removing.LoadOrStore(world, true); removing {
		return errNotNow(world, errRemoving)
	}
	ws.placer.SetRemoving(world, true)
	defer func() {
		ws.removing.Delete(world)
		ws.placer.SetRemoving(world, false)
	}()
	return errors.Join(remove(), ws.shared.Grant(ws.Names))
}

// errOvertaken refuses a removal by a server that was suspended.
var errOvertaken = fmt.Errorf("%w: another server may have become its writer", service.ErrWorldNotServed)

// isRemoving reports whether this server is removing a world.
func (ws *Worlds) isRemoving(world string) bool {
	_, removing := ws.removing.Load(world)
	return removing
}

// removeServed removes a world that this server serves.
func (w *World) removeServed(ctx context.Context, force bool) error {
	if !force {
		if err := w.requireUnused(ctx); err != nil {
			return err
		}
	}
	ws := w.worlds
	return ws.removeOnce(w.name, func() error {
		if !ws.forget(w) { // the world may have been made anew
			return fmt.Errorf("%w: %s was removed", service.ErrUnknownWorld, w.name)
		}
		bounded, cancel := context.WithTimeout(ctx, retireTimeout)
		defer cancel()
		held, err := w.closeKeepingLease(bounded)
		if err != nil {
			w.logger.Warn("requests in hand were cut off by the removal of the world", "error", err)
		}
		if ws.placer != nil && held == nil { // the lease was lost meanwhile
			_, err := ws.host(w.name, worldsettings.Settings{}, false)
			return errors.Join(errOvertaken, err)
		}
		return ws.deleteStreams(ctx, w.name, held)
	})
}

// removeUnserved removes a world that no server serves.
func (ws *Worlds) removeUnserved(ctx context.Context, world string) (err error) {
	if w := ws.get(world); w != nil {
		ws.drop(w)
	}
	var held *lease.Lease
	if ws.placer != nil {
		if held, err = ws.elector(world, ws.shared.ServiceConfig.Logger).Try(ctx); err != nil {
			return fmt.Errorf("%w: a server has just acquired its lease; try again: %w",
				service.ErrWorldNotServed, err)
		}
	}
	// Another server may have removed the world in the meantime, and a new one may have its name.
	exists, err := ws.exists(ctx, world)
	if err == nil && exists {
		err = ws.deleteStreams(ctx, world, held)
	}
	if held != nil {
		held.Release(ctx)
	}
	return err
}

// requireUnused returns ErrWorldInUse if the world has unanswered requests or connected plugins.
func (w *World) requireUnused(ctx context.Context) error {
	if t := w.tenure(); t != nil {
		stats := t.engine.Status().Stats()
		if n := max(t.service.Overload().Held, stats.Unfinished+stats.Applying); n > 0 {
			return fmt.Errorf("%w: %d of its requests are in hand: pause the world and wait, or force the "+
				"removal", service.ErrWorldInUse, n)
		}
	}
	connected, err := w.pluginConnected(ctx)
	if err == nil && connected {
		err = fmt.Errorf("%w: a plugin is connected that applies its commands: stop the plugin, or force "+
			"the removal", service.ErrWorldInUse)
	}
	return err
}

// pluginConnected reports whether a plugin of the world is connected. An existing NATS does not tell its
// clients, so plugins are asked as they ask each other.
func (w *World) pluginConnected(ctx context.Context) (bool, error) {
	shared := w.worlds.shared
	if shared.Embedded != nil {
		clients, err := shared.Embedded.Clients(w.name, shared.ServiceConfig.Access, nil)
		return slices.ContainsFunc(clients, func(c messages.Client) bool {
			return c.Connections > 0 && len(c.Towns) > 0
		}), err
	}
	nc := shared.Conn
	if shared.ServiceConfig.Access != nil {
		var err error
		if nc, err = shared.ConnectClient(); err != nil {
			return false, err
		}
		defer nc.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, pluginsTimeout)
	defer cancel()
	_, err := nc.RequestWithContext(ctx, wire.HostsSubject(w.name, wire.AllTownsToken), nil)
	return !errors.Is(err, nats.ErrNoResponders), nil
}

// announceRemoval has the servers that stand by for a world forget it: otherwise they would make the world anew. It
// announces the removal again if the connection was lost meanwhile.
func (ws *Worlds) announceRemoval(ctx context.Context, world string) error {
	for nc := ws.shared.Conn; ; {
		reconnects := nc.Stats().Reconnects
		err := nc.Publish(layout.RemovedSubject(world), []byte(world))
		if err == nil {
			err = natsconn.Flush(ctx, nc)
		}
		if err != nil || nc.Stats().Reconnects == reconnects {
			return err
		}
	}
}

// deleteStreams deletes the index of a world, its streams and its lease. The log MUST go last but for the lease:
// until then the world exists, and the removal can be repeated. An index that outlived its log would
// miss the records of that log in a new world of the name.
func (ws *Worlds) deleteStreams(ctx context.Context, world string, held *lease.Lease) error {
	err := ws.announceRemoval(ctx, world)
	if err == nil && ws.shared.Embedded != nil {
		err = os.RemoveAll(ws.shared.Embedded.IndexDir(world))
	}
	streams := append(slices.DeleteFunc(streamdirs.StreamNames(world), func(name string) bool {
		return name == layout.LogStream(world) || name == streamdirs.LeaseStream(world)
	}), layout.LogStream(world))
	for _, name := range streams {
		if err == nil && held != nil && !held.Valid() { // this process was suspended
			err = errOvertaken
		}
		if err == nil {
			err = ignoreMissing(ws.shared.JetStream.DeleteStream(ctx, name))
		}
	}
	if held != nil {
		held.Release(ctx)
	}
	if err == nil {
		err = ignoreMissing(ws.shared.JetStream.DeleteStream(ctx, streamdirs.LeaseStream(world)))
	}
	if err != nil {
		return fmt.Errorf("hosting: the world %s is not removed yet; try again: %w", world, err)
	}
	ws.config.Backlogs.forget(world)
	ws.shared.Metrics.Remove(world)
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
