package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/lifecycle"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/lease"
)

// purpose is the purpose of one of the server's own connections, which is part of its name.
type purpose string

const (
	committing        purpose = "engine"
	following         purpose = "followers"
	requesting        purpose = "requests"          // receives requests in the world's account
	asking            purpose = "asking"            // receives the answers of plugins
	probing           purpose = "probing"           // in the clients' account
	checking          purpose = "checking"          // compares settings
	restoring         purpose = "restore"           // writes a backup
	requestingClients purpose = "clients' requests" // receives requests in the clients' account
	answering         purpose = "clients' answers"  // sends answers in the clients' account
	modelling         purpose = "language models"   // asks for sessions over HTTP
)

// connections are the connections that last as long as the server; nil before they are made.
type connections struct {
	committing *nats.Conn
	js         jetstream.JetStream // over committing
	following  *nats.Conn
	asking     *nats.Conn // nil if plugins are asked in the world's account
	answering  *nats.Conn // nil if no requests are received in the clients' account

	dials atomic.Uint64 // how often committing and following were dialled
}

// connectAll makes the connections, all or none.
func (s *Server) connectAll(ctx context.Context) error {
	err := s.connectEach(ctx)
	if err != nil {
		_ = s.disconnect(ctx)
	}
	return err
}

func (s *Server) connectEach(ctx context.Context) (err error) {
	if s.conns.committing, err = s.connectFirst(ctx); err != nil {
		return err
	}
	// Without the timeout, renewals of leases that get no answer would pile up.
	s.conns.js, err = jetstream.New(s.conns.committing, jetstream.WithPublishAsyncTimeout(lease.DefaultTTL))
	if err != nil {
		return fmt.Errorf("server: JetStream: %w", err)
	}
	if s.conns.following, err = s.connect(following, nil); err != nil {
		return err
	}
	if s.embedded != nil {
		if err := s.embedded.FollowStreams(s.conns.committing); err != nil {
			return err
		}
	}
	if s.config.twoAccounts() {
		if s.conns.asking, err = s.connect(asking, nil); err != nil {
			return err
		}
	}
	if s.config.anonymousClients() {
		if s.conns.answering, err = s.connect(answering, nil); err != nil {
			return err
		}
	}
	if s.config.Access != nil && s.embedded == nil {
		return s.checkCrossing(ctx)
	}
	return nil
}

func (s *Server) disconnect(context.Context) error {
	for _, nc := range []*nats.Conn{s.conns.committing, s.conns.following, s.conns.asking, s.conns.answering} {
		if nc != nil {
			nc.Close()
		}
	}
	return nil
}

// isForClients reports whether the connection is in the clients' account of an embedded NATS.
func (p purpose) isForClients() bool {
	return p == requestingClients || p == answering
}

// dialTimeout bounds how long connecting to NATS may take; natsconn has the same bound.
const dialTimeout = 5 * time.Second

// reconnectWait is the pause before each attempt to connect to an existing NATS again.
const reconnectWait = nats.DefaultReconnectWait

// pingInterval is how often a connection asks an existing NATS whether it is there. After two questions
// without an answer it connects to another node. The client's own interval of 2 minutes would leave the
// world unserved for up to 6 minutes after the loss of a machine. Followers, whose answers may be late
// behind much data, ask a fourth as often.
const pingInterval = 5 * time.Second

// connect makes one of the server's own connections. If there is a throttle, the connection is read
// only while the throttle has room. more options come last.
func (s *Server) connect(purpose purpose, throttle *service.Throttle, more ...nats.Option) (*nats.Conn, error) {
	logger := s.config.Logger.With("connection", purpose)
	options := []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(cmp.Or(s.config.timeouts.reconnect, reconnectWait)),
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
	connection, dial := s.config.External.Connection, (&net.Dialer{Timeout: dialTimeout}).Dial
	switch {
	case s.embedded != nil:
		connection, dial = natsconn.Options{}, s.embedded.Dial
		options = append(options, s.embedded.OwnKey(purpose.isForClients()), nats.ReconnectWait(50*time.Millisecond),
			nats.ReconnectJitter(10*time.Millisecond, 10*time.Millisecond))
	case purpose == probing, purpose == modelling && s.config.Access == nil:
		connection = s.config.External.Clients
	case purpose == restoring:
	case purpose == following:
		options = append(options, nats.PingInterval(4*cmp.Or(s.config.timeouts.ask, pingInterval)))
	default:
		options = append(options, nats.PingInterval(cmp.Or(s.config.timeouts.ask, pingInterval)))
	}
	if purpose == asking {
		connection.Inbox = access.AskingInbox
	}
	options = append(options, nats.SetCustomDialer(dialer(
		func(network, address string) (net.Conn, error) {
			if purpose == committing || purpose == following {
				s.conns.dials.Add(1)
			}
			conn, err := dial(network, address)
			if err == nil && throttle != nil {
				conn = throttle.Wrap(conn)
			}
			return conn, err
		})))
	connect := connection.Connect
	if purpose == restoring && s.embedded == nil { // which may be the NATS of a handoffd
		connect = connection.ConnectOperator
	}
	return connect(s.config.External.URL,
		"handoffd "+s.config.label()+string(purpose), append(options, more...)...)
}

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

// A start tries for connectTimeout to connect to an existing NATS, which may be starting too, with
// connectInterval between two tries.
const (
	connectTimeout  = 30 * time.Second
	connectInterval = 250 * time.Millisecond
)

// connectFirst makes the connection that commits. It waits for an existing NATS that is not there.
func (s *Server) connectFirst(ctx context.Context) (*nats.Conn, error) {
	wait := cmp.Or(s.config.timeouts.start, connectTimeout)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for said := false; ; said = true {
		nc, err := s.connect(committing, nil)
		if err == nil || !isAway(err) {
			return nc, err
		}
		if !said {
			s.config.Logger.Warn("the NATS of --nats is not there; the start waits for it",
				"error", err, "wait", wait)
		}
		if backoff.Sleep(ctx, connectInterval) != nil {
			return nil, err
		}
	}
}

// isAway reports whether an error of connecting means that no NATS is there yet: nothing listens, or
// its name is not known.
func isAway(err error) bool {
	var dial *net.OpError
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) ||
		errors.As(err, &dial) && dial.Op == "dial"
}

// dialer is a nats.CustomDialer.
type dialer func(network, address string) (net.Conn, error)

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// connectAlone connects to NATS for one task without a server: to a private NATS on the data
// directory of a configuration, or to the existing one. end closes the connection and the private
// NATS.
func connectAlone(ctx context.Context, config Config, purpose purpose) (nc *nats.Conn, end func(), err error) {
	config.Access, config.Embedded.Private = nil, true
	s := newServer(config)
	err = s.parts.Start(ctx, s.embeddedPart(), lifecycle.Part{Name: "the connection", Start: func(context.Context) (err error) {
		nc, err = s.connect(purpose, nil)
		return err
	}})
	return nc, func() {
		nc.Close()
		_ = s.parts.Stop(context.WithoutCancel(ctx)) // the log has what went wrong
	}, err
}

// serveRequests starts the service of all worlds. It receives requests in the world's account and, if an
// embedded NATS has an account for clients without credentials, in that account. With access control
// the requests of clients cross to the world's account, and NATS marks them with their user on the
// way.
func (s *Server) serveRequests(context.Context) (err error) {
	listeners := []service.Listener{{Replies: s.conns.committing}}
	purposes := []purpose{requesting}
	if s.config.anonymousClients() {
		listeners = append(listeners, service.Listener{Replies: s.conns.answering})
		purposes = append(purposes, requestingClients)
	}
	for i := range listeners {
		in := &listeners[i]
		in.Throttle = new(service.Throttle)
		if in.Requests, err = s.connect(purposes[i], in.Throttle); err != nil {
			for _, other := range listeners[:i] {
				other.Requests.Close()
			}
			return err
		}
	}
	s.service = service.New(listeners, s.serviceConfig())
	return nil
}

func (s *Server) stopRequests(ctx context.Context) error { return s.service.Stop(ctx) }
