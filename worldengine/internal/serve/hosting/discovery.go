package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/wakeup"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
)

// Times of looking for worlds.
const (
	// searchInterval is the pause between two looks for worlds if no advisory says that there is a new one:
	// an advisory can be lost.
	searchInterval = 30 * time.Second
	// searchDelay is the pause between an advisory and the look: worlds may come in numbers.
	searchDelay = 100 * time.Millisecond
	// searchTimeout bounds a look.
	searchTimeout = 10 * time.Second
)

// startSearch makes a server of several worlds serve the worlds of the NATS that it may serve, also those that
// are made later, or made anew after their removal. NATS says in advisories which streams are made and
// deleted.
func (ws *Worlds) startSearch(ctx context.Context) error {
	changed := wakeup.New()
	for _, change := range []string{
		natsserver.JSAdvisoryStreamCreatedPre, natsserver.JSAdvisoryStreamDeletedPre,
	} {
		_, err := ws.shared.Conn.Subscribe(change+".*", func(msg *nats.Msg) {
			if _, ok := layout.LogWorld(msg.Subject[len(change)+1:]); ok {
				changed.Wake()
			}
		})
		if err != nil {
			return fmt.Errorf("hosting: changes of streams: %w", err)
		}
	}
	if err := commitlog.RetryTransient(ctx, ws.findWorlds); err != nil {
		return err
	}
	ws.search.Go(func() {
		for ws.awaitSearch(changed) {
			ctx, cancel := context.WithTimeout(ws.ctx, searchTimeout)
			err := ws.findWorlds(ctx)
			cancel()
			if err != nil && ws.ctx.Err() == nil {
				ws.shared.ServiceConfig.Logger.Warn("the worlds of NATS cannot be listed; will try again", "error", err)
			}
		}
	})
	return nil
}

// awaitSearch waits until it is time to look for worlds. It returns false when the process is stopping.
func (ws *Worlds) awaitSearch(changed <-chan struct{}) bool {
	select {
	case <-changed:
	case <-time.After(searchInterval):
	case <-ws.ctx.Done():
	}
	return backoff.Sleep(ws.ctx, searchDelay) == nil
}

// findWorlds starts the worlds that the server does not have yet, and drops those that are gone. It
// keeps a world that it serves: a log that is lost is no world that was removed.
func (ws *Worlds) findWorlds(ctx context.Context) error {
	// Seen before the logs are listed: the log of a world that is being made may be missing in the list.
	seen := slices.DeleteFunc(ws.all(), func(w *World) bool { return w.named || !w.removedIfLogMissing() })
	stored, err := ws.storedWorlds(ctx)
	if err != nil {
		return err
	}
	before := ws.Names()
	for _, world := range stored {
		if ws.config.mayHost(world) && ws.get(world) == nil && !ws.isRemoving(world) {
			_, err := ws.host(world, worldsettings.Settings{}, false)
			if err != nil && !errors.Is(err, service.ErrWorldExists) && !errors.Is(err, errDraining) {
				ws.shared.ServiceConfig.Logger.Error("a world cannot be started", "world", world, "error", err)
			}
		}
	}
	for _, w := range seen {
		if !slices.Contains(stored, w.name) && w.removedIfLogMissing() {
			ws.drop(w)
		}
	}
	if !slices.Equal(before, ws.Names()) {
		return ws.shared.Grant(ws.Names)
	}
	return nil
}

// storedWorlds returns the worlds that have a log in the NATS.
func (ws *Worlds) storedWorlds(ctx context.Context) (worlds []string, err error) {
	names := ws.shared.JetStream.StreamNames(ctx)
	for name := range names.Name() {
		if world, ok := layout.LogWorld(name); ok {
			worlds = append(worlds, world)
		}
	}
	return worlds, names.Err()
}
