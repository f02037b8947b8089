package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/client"
	"worldengine/worldengine/server"
)

// freshWorlds are empty worlds for fixtures: an embedded NATS in a directory that is removed, and a
// world engine for each world. It is safe for concurrent use.
type freshWorlds struct {
	timeout time.Duration

	mu      sync.Mutex
	dir     string
	servers []*server.Server // the first one has the NATS
	clients map[freshWorld]*client.Client
}

// freshWorld names the nth world of a file.
type freshWorld struct {
	file string
	nth  int
}

// of returns the nth world of a file, which is empty when it is asked for first.
func (w *freshWorlds) of(ctx context.Context, file string, nth int) (*client.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := freshWorld{file, nth}
	if c, ok := w.clients[at]; ok {
		return c, nil
	}
	c, err := w.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("a throw-away server cannot be started: %w", err)
	}
	if w.clients == nil {
		w.clients = map[freshWorld]*client.Client{}
	}
	w.clients[at] = c
	return c, nil
}

// start starts a server for one more world. The caller holds the lock.
func (w *freshWorlds) start(ctx context.Context) (*client.Client, error) {
	config := server.Config{
		Listen: "127.0.0.1:0", Sync: server.SyncInterval,
		Open: true, Logger: slog.New(slog.DiscardHandler),
	}
	config.Engine.World = fmt.Sprintf("fresh-%d", len(w.servers)+1)
	if len(w.servers) > 0 {
		config.NATS = w.servers[0].URL()
	} else {
		var err error
		if w.dir, err = os.MkdirTemp("", "handoffctl-replay-"); err != nil {
			return nil, err
		}
		config.Data = w.dir
	}
	s, err := server.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	w.servers = append(w.servers, s)
	nc, err := nats.Connect(s.URL(), nats.Name("handoffctl"))
	if err != nil {
		return nil, err
	}
	return &client.Client{Conn: nc, World: config.Engine.World, Timeout: w.timeout}, nil
}

// close ends the servers and removes what they stored.
func (w *freshWorlds) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range w.clients {
		c.Conn.Close()
	}
	var errs []error
	for i := len(w.servers) - 1; i >= 0; i-- { // the one with the NATS last
		errs = append(errs, w.servers[i].Close(ctx))
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}
