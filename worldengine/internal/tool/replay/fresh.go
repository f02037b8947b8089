package replay

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/tool/tempserver"
)

// freshWorlds are the temporary worlds of a file, each on a private server. nth has the index of
// each town's world.
type freshWorlds struct {
	timeout time.Duration
	nth     map[string]int
	worlds  []*client.Client
	closers []func() error // of the servers
}

// world returns the world of a town.
func (w *freshWorlds) world(ctx context.Context, townID string) (*client.Client, error) {
	n := w.nth[townID]
	if n == len(w.worlds) {
		srv, end, err := tempserver.Start(ctx, server.Config{Embedded: embedded.Config{Sync: embedded.SyncInterval}})
		if err != nil {
			return nil, err
		}
		w.closers = append(w.closers, end)
		world, err := client.Connect(srv.URL(), client.Options{Name: "handoffctl"})
		if err != nil {
			return nil, err
		}
		world.Timeout = w.timeout
		w.worlds = append(w.worlds, world)
	}
	return w.worlds[n], nil
}

// close ends the servers.
func (w *freshWorlds) close() (err error) {
	for _, world := range w.worlds {
		world.Close()
	}
	for _, end := range w.closers {
		err = errors.Join(err, end())
	}
	return err
}
