// Package server puts the parts of a world engine together in one process: an embedded NATS with
// JetStream, or a connection to an existing one; the engine; its service; and the towns of a
// world file. It is what handoffd runs, and what tests and benchmarks start.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/rcon"
	"worldengine/worldengine/service"
)

// Sync is when the embedded NATS brings a commit to the disk.
type Sync string

// The sync modes.
const (
	// SyncAlways: before it is answered. An answer means "on disk".
	SyncAlways Sync = "always"
	// SyncInterval: every SyncInterval. Faster; an answer means "in the kernel's page cache", so
	// it survives the end of the process and not the loss of power.
	SyncInterval Sync = "interval"
)

// Defaults of what operators may set.
const (
	DefaultListen       = "127.0.0.1:4222"
	DefaultData         = "./handoffd-data"
	DefaultSyncInterval = 2 * time.Second
	DefaultDrainTimeout = 20 * time.Second
	// DefaultMaxConnections leaves room for many agents and bounds what those may cost that send half a
	// message each: up to 16 MiB.
	DefaultMaxConnections = 1024
)

// Config says what a server is made of. The zero value of every member means its documented
// default.
type Config struct {
	// Listen is where the embedded NATS listens, HOST:PORT, port 0 for a free one; DefaultListen.
	Listen string
	// Data is the directory of the embedded NATS; DefaultData.
	Data string
	// Sync is when a commit is brought to the disk; SyncAlways. The interval of SyncInterval is
	// SyncInterval; DefaultSyncInterval.
	Sync         Sync
	SyncInterval time.Duration
	// MaxConnections is how many connections the embedded NATS takes, the server's own included;
	// DefaultMaxConnections.
	MaxConnections int
	// NATS is the URL of an existing NATS with JetStream to join, with Connection's options. With
	// it nothing is embedded, and Listen, Data and Sync mean nothing.
	NATS       string
	Connection natsconn.Options
	// WorldFile is a JSON array of snapshot.v1 whose towns are created where they do not exist.
	// World is the same as bytes.
	WorldFile string
	World     []byte
	// RCON is the console that applies the commands of towns bound to worldengine.ApplyRCON; nil where
	// there is none. With it, Engine.RCON is the server's own.
	RCON *rcon.Config
	// Access is who may connect and do what; nil where everybody may do everything. An embedded server
	// then listens on loopback only, unless InsecureListen says that it need not. With NATS the users and
	// accounts are that server's, Connection must lead into the world's account, and Clients into that of
	// the clients.
	Access         *access.Config
	InsecureListen bool
	Clients        natsconn.Options
	// Engine and Service are the settings of the parts. Service.World follows Engine.World.
	Engine  worldengine.Config
	Service service.Config
	// Logger is where trouble is told; slog.Default.
	Logger *slog.Logger

	private bool // the embedded NATS does not listen: only this process is connected
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Data == "" {
		c.Data = DefaultData
	}
	if c.Sync == "" {
		c.Sync = SyncAlways
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = DefaultSyncInterval
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = DefaultMaxConnections
	}
	if c.Engine.World == "" {
		c.Engine.World = worldengine.DefaultWorld
	}
	c.Service.World = c.Engine.World
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Engine.Logger, c.Service.Logger = c.Logger, c.Logger
	if c.Access != nil {
		c.Service.Access = access.NewDirectory(c.Access.Users)
	}
	return c
}

// Server is a running world engine. Start makes one, Close ends it.
type Server struct {
	url       string
	created   int
	embedded  *embedded     // nil where an existing NATS was joined
	conn      *nats.Conn    // commits, reads and answers
	followers *nats.Conn    // what is derived from the log
	asking    *nats.Conn    // asks plugins, in the clients' account; nil without access control
	console   *rcon.Console // nil where none is configured
	engine    *worldengine.Engine
	service   *service.Service
}

// Start starts a server. When it returns, requests are answered. ctx bounds the start only.
func Start(ctx context.Context, config Config) (_ *Server, err error) {
	config = config.withDefaults()
	s := &Server{url: config.NATS}
	defer func() {
		if err != nil {
			s.abandon()
		}
	}()
	if err := worldengine.ValidateWorld(config.Engine.World); err != nil {
		return nil, err
	}
	if config.RCON != nil {
		if s.console, err = rcon.New(*config.RCON); err != nil {
			return nil, err
		}
		config.Engine.RCON = s.console
	}
	if config.NATS == "" {
		s.embedded, err = startEmbedded(&config)
		if err != nil {
			return nil, err
		}
		s.url = s.embedded.nats.ClientURL()
	}
	if s.conn, err = s.connect(config, "engine"); err != nil {
		return nil, err
	}
	if s.followers, err = s.connect(config, "followers"); err != nil {
		return nil, err
	}
	if config.Access != nil {
		if s.asking, err = s.connect(config, asking); err != nil {
			return nil, err
		}
		config.Engine.Plugins = s.asking
	}
	if s.engine, err = worldengine.Open(ctx, s.conn, s.followers, config.Engine); err != nil {
		return nil, err
	}
	if err := s.loadWorld(ctx, config); err != nil {
		return nil, err
	}
	requests, err := s.connect(config, "requests")
	if err != nil {
		return nil, err
	}
	s.service, err = service.Serve(requests, s.conn, s.engine, config.Service)
	if err != nil {
		requests.Close()
		return nil, err
	}
	return s, nil
}

// asking is the purpose of the connection to the clients' account.
const asking = "asking"

// connect makes one of the server's own connections.
func (s *Server) connect(config Config, purpose string) (*nats.Conn, error) {
	name := "handoffd " + config.Engine.World + " " + purpose
	logger := config.Logger.With("connection", purpose)
	options := []nats.Option{
		nats.MaxReconnects(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				logger.Warn("NATS is away", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { logger.Info("NATS is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Warn("NATS reports", "error", err)
		}),
	}
	if s.embedded == nil {
		connection := config.Connection
		if purpose == asking {
			connection = config.Clients
		}
		return connection.Connect(config.NATS, name, options...)
	}
	options = append(options, nats.Name(name), nats.InProcessServer(s.embedded.nats),
		s.embedded.accounts.option(purpose == asking))
	nc, err := nats.Connect("", options...)
	if err != nil {
		return nil, fmt.Errorf("server: connection to the embedded NATS: %w", err)
	}
	return nc, nil
}

func (s *Server) loadWorld(ctx context.Context, config Config) error {
	file, err := config.worldFile()
	if err != nil || file == nil {
		return err
	}
	s.created, err = s.engine.LoadWorld(ctx, file)
	return config.inWorldFile(err)
}

// worldFile returns the world file, or nil where there is none.
func (c *Config) worldFile() ([]byte, error) {
	if c.WorldFile == "" {
		return c.World, nil
	}
	file, err := os.ReadFile(c.WorldFile)
	if err != nil {
		return nil, fmt.Errorf("server: world file: %w", err)
	}
	return file, nil
}

// inWorldFile says in which file an error was found.
func (c *Config) inWorldFile(err error) error {
	if err != nil && c.WorldFile != "" {
		return fmt.Errorf("server: world file %s: %w", c.WorldFile, err)
	}
	return err
}

// URL returns the NATS URL at which the server is reached.
func (s *Server) URL() string { return s.url }

// Created returns how many towns of the world file were created at the start.
func (s *Server) Created() int { return s.created }

// Engine returns the engine.
func (s *Server) Engine() *worldengine.Engine { return s.engine }

// Close stops taking requests, finishes and answers those in hand, and ends what was started. ctx
// bounds the wait for what is in hand.
func (s *Server) Close(ctx context.Context) error {
	err := s.service.Stop(ctx)
	err = errors.Join(err, s.engine.Close(ctx))
	if s.console != nil {
		s.console.Close()
	}
	// The last answers must have left before the connection goes.
	if flushErr := s.conn.FlushWithContext(ctx); flushErr != nil {
		err = errors.Join(err, fmt.Errorf("server: last answers: %w", flushErr))
	}
	s.conn.Close()
	s.followers.Close()
	if s.asking != nil {
		s.asking.Close()
	}
	if s.embedded != nil {
		s.embedded.close()
	}
	return err
}

// abandon ends what a failed Start had started.
func (s *Server) abandon() {
	if s.engine != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.engine.Close(ctx) // nothing was taken, so there is nothing to finish
	}
	if s.console != nil {
		s.console.Close()
	}
	for _, nc := range []*nats.Conn{s.conn, s.followers, s.asking} {
		if nc != nil {
			nc.Close()
		}
	}
	if s.embedded != nil {
		s.embedded.close()
	}
}
