package server

import (
	"context"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/wire"
)

// SetStartWait sets how long the start of a server waits for an existing NATS that is not there.
func (c *Config) SetStartWait(d time.Duration) { c.timeouts.start = d }

// SetReconnectWait sets the pause before each attempt to connect to an existing NATS again.
func (c *Config) SetReconnectWait(d time.Duration) { c.timeouts.reconnect = d }

// SetAskNode sets how often a connection asks an existing NATS whether it is there.
func (c *Config) SetAskNode(d time.Duration) { c.timeouts.ask = d }

// SetLeaseTTL sets how long a lease lasts without renewal.
func (c *Config) SetLeaseTTL(d time.Duration) { c.timeouts.lease = d }

// AwaitedAnswers returns for how many requests of clients NATS keeps the way of the answer.
func (s *Server) AwaitedAnswers() int {
	return s.embedded.Server().GlobalAccount().NumPendingAllResponses()
}

// SetWorlds makes the server give its users their permissions among other worlds.
func (s *Server) SetWorlds(names ...string) error {
	return s.grantWorlds(func() []string { return names })
}

// Dials returns how often the connections that commit and follow the log were dialled.
func (s *Server) Dials() uint64 { return s.conns.dials.Load() }

// MostPending returns how many bytes NATS keeps for that connection for which it keeps the most.
func (s *Server) MostPending() (most int, err error) {
	connections, err := s.embedded.Server().Connz(&natsserver.ConnzOptions{Limit: 1 << 10})
	if err != nil {
		return 0, err
	}
	for _, c := range connections.Conns {
		most = max(most, c.Pending)
	}
	return most, nil
}

// BehindBridge returns the URL of the WebSocket listener of the embedded NATS, which browsers reach
// through the bridge.
func (s *Server) BehindBridge() string { return s.embedded.Server().WebsocketURL() }

// IndexInUse returns the world whose index the server keeps in a directory, and a connection that
// reads its log; dir is "" if the server keeps none or does not serve, or the log is gone or lost
// its end.
func (s *Server) IndexInUse(ctx context.Context) (nc *nats.Conn, world, dir string) {
	e := s.Engine()
	if e == nil || e.Watcher().Lost() != nil {
		return nil, "", ""
	}
	if _, _, err := e.Status().CatchUp(ctx); err != nil {
		return nil, "", ""
	}
	if s.embedded != nil {
		dir = s.embedded.IndexDir(s.config.Engine.World)
	}
	return s.conns.committing, s.config.Engine.World, dir
}

// Models returns the users of the sessions of language models in the main world.
func (s *Server) Models() (users []string) {
	for _, c := range s.models.Clients(wire.DefaultWorld) {
		users = append(users, c.User)
	}
	return users
}

// Data returns the data directory.
func (s *Server) Data() string { return s.config.Embedded.Data }

// Subscribed returns how many connections the embedded NATS has, and how many subscriptions these have.
func (s *Server) Subscribed() (connections int, subscriptions uint32) {
	return s.embedded.Server().NumClients(), s.embedded.Server().NumSubscriptions()
}
