// Package server runs the parts of a world engine in one process: NATS with JetStream, embedded or
// existing; the engine; its service; the towns of a world file. handoffd, tests and benchmarks
// start it.
package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/lifecycle"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/mcphttp"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/serve/sharing"
	"worldengine/worldengine/internal/serve/tlsfiles"
	"worldengine/worldengine/internal/serve/webhook"
	"worldengine/worldengine/internal/store/lease"
)

// quotas are the errors of an account of NATS that has reached one of its limits.
var quotas = []jetstream.ErrorCode{
	jetstream.ErrorCode(natsserver.JSAccountResourcesExceededErr),
	jetstream.ErrorCode(natsserver.JSMaximumStreamsLimitErr),
	jetstream.ErrorCode(natsserver.JSStorageResourcesExceededErr),
}

// noStreamsError adds a remedy to the error of an existing NATS that has no streams, denies them, or has
// no room for them.
func (c *Config) noStreamsError(err error) error {
	switch {
	case c.External.URL == "":
		return err
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: that NATS server has no JetStream; start it with JetStream", err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w: that NATS server denies this user its streams; give the credentials "+
			"of a user in the world's account or, if it is a handoffd's, start that one with --open", err)
	}
	refused, _ := errors.AsType[*jetstream.APIError](err)
	if refused != nil && slices.Contains(quotas, refused.ErrorCode) {
		return fmt.Errorf("%w: that NATS has no room for the world: raise the limits of its account, or "+
			"remove a world", err)
	}
	return err
}

// Server is a running world engine. Start makes one, Close ends it.
type Server struct {
	config     Config
	url        string
	embedded   *embedded.NATS   // nil if an existing NATS was joined
	conn       *nats.Conn       // commits, reads, and answers in the world's account
	readConn   *nats.Conn       // for readers of the log
	dials      atomic.Uint64    // of conn and readConn
	pluginConn *nats.Conn       // asks plugins, on inboxes of its own; nil if there is one account
	keeper     *lease.Keeper    // renews the leases of all worlds
	service    *service.Service // receives the requests of all worlds
	replyConn  *nats.Conn       // answers in the clients' account; nil if no requests are received there
	http       *httpd.Server    // nil without HTTP
	bridge     *httpd.Bridge    // leads browsers to NATS; nil without HTTP
	models     *mcphttp.Gate    // nil without HTTP
	metrics    *metrics.Metrics // nil without HTTP
	webhooks   *webhook.Sender  // nil without a webhook
	tls        *tlsfiles.Live   // nil without TLS

	accessing sync.Mutex     // guards access and granted
	access    *access.Config // in force; nil without access control
	granted   []string       // the worlds among which users have permissions; sorted

	manager       *manager
	removing      sync.Map        // the worlds that are being removed
	placer        *sharing.Placer // nil if no other server can join
	worlds        registry
	starts        chan struct{}      // has an element for each world that is being started
	changed       chan struct{}      // see Changed
	draining      atomic.Bool        // Close was called
	stopDiscovery context.CancelFunc // ends looking for worlds
	discovery     sync.WaitGroup

	parts lifecycle.List
}

func newServer(config Config) *Server {
	config = config.withDefaults()
	return &Server{
		config: config, url: config.External.URL, access: config.Access,
		granted: slices.Sorted(slices.Values(config.Worlds.Names)),
		starts:  make(chan struct{}, startsAtOnce), changed: make(chan struct{}, 1), stopDiscovery: func() {},
	}
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
		{Name: "the webhooks", Start: s.openWebhooks, Stop: s.closeWebhooks},
		{Name: "the named worlds", Start: s.hostNamed},
	}
}

// online returns the other parts. They stop in the reverse order, which loses no answer: first no language
// model and no other server can bring new work, then each world answers the requests that it has received and
// releases its lease, then the connections that carried the answers close, and NATS after them. A part without
// Start only stops: it stands before the parts whose work it ends, so it also runs if one of them fails to start.
func (s *Server) online() []lifecycle.Part {
	return []lifecycle.Part{
		{Name: "HTTP", Start: s.listenHTTP, Stop: s.closeHTTP},
		{Name: "the embedded NATS", Start: s.embed, Stop: s.closeEmbedded},
		{Name: "the connections", Stop: s.disconnect},
		{Name: "the connections to NATS", Start: s.connectAll},
		{Name: "the workers", Stop: s.stopWorkers},
		{Name: "the placer", Start: s.startPlacer, Stop: s.stopPlacer},
		{Name: "the language models", Start: s.openModels, Stop: s.closeModels},
		{Name: "the requests", Start: s.serveRequests, Stop: s.stopRequests},
		{Name: "the pages", Start: s.serveHTTP},
		{Name: "the worlds", Stop: s.worlds.close},
		{Name: "new work", Stop: s.drain},
		{Name: "the verbs about worlds", Start: s.manageWorlds},
		{Name: "the service of the worlds", Start: s.serveWorlds},
	}
}

// loadTLS reads the TLS files, if there are any.
func (s *Server) loadTLS(context.Context) (err error) {
	s.tls, err = tlsfiles.Load(s.config.Access, s.config.Logger)
	return err
}

func (s *Server) openWebhooks(context.Context) (err error) {
	if posts := s.config.Webhook; len(posts.URLs) > 0 {
		posts.Logger = s.config.Logger
		s.webhooks, err = webhook.New(posts)
	}
	return err
}

func (s *Server) closeWebhooks(ctx context.Context) error {
	if s.webhooks != nil {
		s.webhooks.Close(ctx)
	}
	return nil
}

// hostNamed makes the worlds that the configuration names. They begin nothing yet.
func (s *Server) hostNamed(context.Context) error {
	for _, world := range s.config.Worlds.Names {
		h, err := newHosted(s, world)
		if err != nil {
			return err
		}
		h.named = true
		s.worlds.add(h)
	}
	return nil
}

// embed starts the embedded NATS, on which the engine and the service then rest, unless there is an existing
// one.
func (s *Server) embed(context.Context) (err error) {
	c := &s.config
	if c.External.URL != "" {
		return nil
	}
	c.Embedded.TLS, c.Embedded.Bridge = s.tls, s.bridge
	if s.embedded, err = embedded.Start(c.Embedded); err != nil {
		return err
	}
	s.url = s.embedded.URL()
	c.Engine.Storage.Disk, c.Engine.HasSubscribers = s.embedded.Disk(), s.embedded.Listening
	c.Engine.Storage.GroupCommits = c.Embedded.Sync == embedded.SyncAlways
	c.Service.Disk = s.embedded.Disk().State
	c.Service.OperatorKey = s.OperatorKey()
	return nil
}

func (s *Server) closeEmbedded(ctx context.Context) error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Close(ctx)
}

// connectAll makes the connections that last as long as the server.
func (s *Server) connectAll(ctx context.Context) (err error) {
	s.config.Service.Name, s.config.Service.ID = s.name(), nuid.Next()
	if s.conn, err = s.connectFirst(ctx); err != nil {
		return err
	}
	// Without the timeout, renewals that get no answer would pile up.
	js, err := jetstream.New(s.conn, jetstream.WithPublishAsyncTimeout(lease.TTL))
	if err != nil {
		return fmt.Errorf("server: JetStream: %w", err)
	}
	s.keeper = lease.NewKeeper(js)
	if s.readConn, err = s.connect(following, nil); err != nil {
		return err
	}
	if s.embedded != nil {
		if err := s.embedded.FollowStreams(s.conn); err != nil {
			return err
		}
	}
	if s.config.twoAccounts() {
		if s.pluginConn, err = s.connect(asking, nil); err != nil {
			return err
		}
		s.config.Engine.PluginConn = s.pluginConn
	}
	if s.config.Access != nil && s.embedded == nil {
		return s.tryCrossing(ctx)
	}
	return nil
}

func (s *Server) disconnect(context.Context) error {
	for _, nc := range []*nats.Conn{s.conn, s.readConn, s.pluginConn, s.replyConn} {
		if nc != nil {
			nc.Close()
		}
	}
	return nil
}

func (s *Server) stopWorkers(context.Context) error {
	s.config.Engine.Bounds.Pool.Close()
	return nil
}

// drain keeps new work away: no language model, no other server and no new world brings any more.
func (s *Server) drain(context.Context) error {
	s.draining.Store(true)
	if s.manager != nil {
		s.manager.stopCreations()
	}
	if s.models != nil {
		s.models.Drain()
	}
	if s.placer != nil {
		s.placer.Drain()
	}
	s.stopDiscovery()
	s.discovery.Wait()
	return nil
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
