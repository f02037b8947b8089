// Package server runs the parts of a world engine in one process: NATS with JetStream, embedded or
// existing; the engine; its service; the towns of a world file. handoffd, tests and benchmarks
// start it.
package server

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/lifecycle"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/hosting"
	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/mcphttp"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/serve/tlsfiles"
	"worldengine/worldengine/internal/serve/webhook"
)

// Server is a running world engine. Start makes one, Close ends it.
type Server struct {
	config Config // does not change
	id     string // among the servers of the worlds
	url    string
	tls    *tlsfiles.Live // nil without TLS
	http   *httpd.Server  // nil without HTTP
	bridge *httpd.Bridge  // leads browsers to NATS; nil without HTTP

	// The parts, which their starts set. Those that are skipped are nil.
	webhooks *webhook.Sender
	metrics  *metrics.Metrics
	embedded *embedded.NATS
	conns    connections
	models   *mcphttp.Gate
	service  *service.Service
	worlds   *hosting.Worlds

	accessing sync.Mutex     // guards access and granted
	access    *access.Config // in force; nil without access control
	granted   []string       // the worlds among which users have permissions; sorted

	parts lifecycle.List
}

func newServer(config Config) *Server {
	s := &Server{config: config.withDefaults(), id: nuid.Next(), url: config.External.URL, access: config.Access}
	s.granted = slices.Sorted(slices.Values(s.config.Worlds.Names))
	return s
}

// Start starts a server. When it returns, requests are answered, or the server stands by because
// another server of the world answers them: see Serving. ctx bounds the start only.
func Start(ctx context.Context, config Config) (*Server, error) {
	s := newServer(config)
	if err := s.config.check(); err != nil {
		return nil, err
	}
	if err := s.parts.Start(ctx, append(s.offline(), s.online()...)...); err != nil {
		return nil, err
	}
	return s, nil
}

// offline returns the parts that require no NATS.
func (s *Server) offline() []lifecycle.Part {
	return []lifecycle.Part{
		{Name: "TLS", Start: s.loadTLS},
		{Name: "the webhooks", Skip: len(s.config.Webhook.URLs) == 0, Start: s.openWebhooks, Stop: s.closeWebhooks},
	}
}

// online returns the other parts. Each uses only parts before it; the comment of a row says which, and why it stands
// there. They stop in the reverse order, which loses no answer: each world answers the requests that it has received
// before the connections that carry the answers close, and NATS after them.
func (s *Server) online() []lifecycle.Part {
	noHTTP := s.config.HTTP.Listen == ""
	return []lifecycle.Part{
		// First, so that a busy address ends the start before anything is stored. NATS sends browsers over its bridge.
		{Name: "the address of HTTP", Skip: noHTTP, Start: s.listenHTTP, Stop: s.closeHTTP},
		s.embeddedPart(),
		{Name: "the connections to NATS", Start: s.connectAll, Stop: s.disconnect},
		// The engines of all worlds share them. They run since newServer, and end when no engine is left.
		{Name: "the workers of the engines", Stop: s.stopWorkers},
		// They connect to NATS. Worlds count them among their clients; a removed world ends its sessions.
		{Name: "the sessions of language models", Skip: noHTTP, Start: s.openModels, Stop: s.closeModels},
		// It answers over the connections, and has no worlds yet.
		{Name: "the service", Start: s.serveRequests, Stop: s.stopRequests},
		// They get all parts above, and are not served yet. Their Stop also ends serving, even if its start failed.
		{Name: "the worlds", Start: s.makeWorlds, Stop: s.closeWorlds},
		// Before worlds are served, which may take minutes: meanwhile the probes and the console answer.
		{Name: "the pages of HTTP", Skip: noHTTP, Start: s.serveHTTP},
		// It stops first, but for serving, which has no Stop of its own: so no model brings new work to worlds that stop.
		{Name: "the requests of language models", Skip: noHTTP, Stop: s.drainModels},
		{Name: "serving the worlds", Start: s.serveWorlds},
	}
}

// loadTLS reads the TLS files, if there are any.
func (s *Server) loadTLS(context.Context) (err error) {
	s.tls, err = tlsfiles.Load(s.config.Access, s.config.Logger)
	return err
}

func (s *Server) openWebhooks(context.Context) (err error) {
	posts := s.config.Webhook
	posts.Logger = s.config.Logger
	s.webhooks, err = webhook.New(posts)
	return err
}

func (s *Server) closeWebhooks(ctx context.Context) error {
	s.webhooks.Close(ctx)
	return nil
}

func (s *Server) embeddedPart() lifecycle.Part {
	return lifecycle.Part{Name: "the embedded NATS", Skip: s.config.External.URL != "",
		Start: s.embed, Stop: func(ctx context.Context) error { return s.embedded.Close(ctx) }}
}

// embed starts the embedded NATS, on which the engine and the service then rest.
func (s *Server) embed(context.Context) (err error) {
	config := s.config.Embedded
	config.TLS, config.Bridge = s.tls, s.bridge
	if s.embedded, err = embedded.Start(config); err == nil {
		s.url = s.embedded.URL()
	}
	return err
}

func (s *Server) stopWorkers(context.Context) error {
	s.config.Engine.Bounds.Pool.Close()
	return nil
}

// makeWorlds makes the worlds, of the parts that they share.
func (s *Server) makeWorlds(context.Context) (err error) {
	s.worlds, err = hosting.New(&s.config.Worlds, &hosting.Shared{
		EngineConfig: s.engineConfig(), ServiceConfig: s.serviceConfig(),
		Embedded: s.embedded, Joinable: s.config.External.URL != "" || s.config.Open, LeaseTTL: s.config.timeouts.lease,
		Conn: s.conns.committing, JetStream: s.conns.js, ReadConn: s.conns.following, ReplyConn: s.conns.answering,
		ConnectClient: func() (*nats.Conn, error) { return s.connect(probing, nil) },
		Service:       s.service, Models: s.models, URL: s.HTTP(), Metrics: s.metrics, Webhooks: s.webhooks,
		Grant: s.grantWorlds, Explain: s.config.noStreamsError,
	})
	return err
}

// engineConfig returns the settings of the engine of each world.
func (s *Server) engineConfig() engine.Config {
	c := s.config.Engine
	c.PluginConn, c.Dials = s.conns.asking, s.conns.dials.Load
	if s.embedded != nil {
		c.Storage.Disk, c.HasSubscribers = s.embedded.Disk(), s.embedded.HasSubscribers
		c.Storage.GroupCommits = s.config.Embedded.Sync == embedded.SyncAlways
	}
	return c
}

// serviceConfig returns the settings of the service of all worlds.
func (s *Server) serviceConfig() service.Config {
	c := s.config.Service
	c.Name, c.ID, c.OperatorKey = s.name(), s.id, s.OperatorKey()
	if s.embedded != nil {
		c.Disk = s.embedded.Disk().State
	}
	return c
}

func (s *Server) closeWorlds(ctx context.Context) error { return s.worlds.Close(ctx) }

func (s *Server) serveWorlds(ctx context.Context) error {
	return s.config.noStreamsError(s.worlds.Start(ctx))
}

// URL returns the NATS URL at which the server is reached from its own machine.
func (s *Server) URL() string { return s.url }

// name returns the name of the server for people: its host, process and addresses.
func (s *Server) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s, pid %d, %s", host, os.Getpid(), natsconn.RedactURLs(s.url))
	if s.http != nil {
		name += ", " + s.http.URL()
	}
	return name
}

// OperatorKey returns the name of the file with the seed of the local operator's NKey; empty with
// access control or an existing NATS.
func (s *Server) OperatorKey() string {
	if s.embedded == nil {
		return ""
	}
	return s.embedded.OperatorKey()
}

// Disk returns the watch on the disk of the data directory; nil if an existing NATS was joined.
func (s *Server) Disk() *diskspace.Watch {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Disk()
}

// Close stops all parts of the server. ctx bounds the wait for the answers to requests in hand.
func (s *Server) Close(ctx context.Context) error { return s.parts.Stop(ctx) }

// Worlds returns the names of the worlds that the server serves or stands by for, in their order.
func (s *Server) Worlds() []string { return s.worlds.Names() }

// Ready returns why the server is not ready; nil if it is. A server of one world is ready when it serves the
// world. A server of several is ready unless it is stopping, or can serve none of them.
func (s *Server) Ready() error { return s.worlds.Ready() }

// ReadyOf returns why the server is not ready to receive requests to a world; nil if it is.
func (s *Server) ReadyOf(world string) error { return s.worlds.ReadyOf(world) }

// Serving reports whether the server answers requests to one of its worlds. Otherwise it stands by, or
// ends.
func (s *Server) Serving() bool { return s.worlds.Serving() }

// Changed returns a channel that gets an element after each change of the worlds that are served, since
// Start. Changes that are not read yet share one element.
func (s *Server) Changed() <-chan struct{} { return s.worlds.Changed() }

// Engine returns the engine of the only world; nil while the server does not serve it.
func (s *Server) Engine() *engine.Engine { return s.EngineOf(s.config.Engine.World) }

// EngineOf returns the engine of a world; nil while the server does not serve the world.
func (s *Server) EngineOf(world string) *engine.Engine { return s.worlds.EngineOf(world) }

// TownsCreated returns how many towns of the world file were created when the server began to serve its
// only world.
func (s *Server) TownsCreated() int { return s.worlds.TownsCreatedIn(s.config.Engine.World) }
