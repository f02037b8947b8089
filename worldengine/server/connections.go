package server

import (
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/access"
	"worldengine/worldengine/service"
)

// purpose is what one of the server's own connections is for, as it stands in its name.
type purpose string

const (
	committing        purpose = "engine"
	following         purpose = "followers"
	requesting        purpose = "requests"          // takes requests in the world's account
	asking            purpose = "asking"            // takes the answers of plugins
	probing           purpose = "probing"           // in the clients' account
	checking          purpose = "checking"          // compares settings
	requestingClients purpose = "clients' requests" // takes requests in the clients' account
	answering         purpose = "clients' answers"  // answers there
)

// ofClients reports whether the connection is in the clients' account.
func (p purpose) ofClients() bool {
	return p == probing || p == requestingClients || p == answering
}

// connect makes one of the server's own connections.
func (s *Server) connect(config Config, purpose purpose) (*nats.Conn, error) {
	return s.connectThrough(nil, config, purpose)
}

// connectThrough makes a connection that is read from as far as intake has room; nil is no intake.
func (s *Server) connectThrough(
	intake *service.Intake, config Config, purpose purpose,
) (*nats.Conn, error) {
	name := "handoffd " + config.Engine.World + " " + string(purpose)
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
		switch purpose {
		case asking:
			connection.Inbox = access.AskingInbox
		case probing:
			connection = config.Clients
		}
		if intake != nil {
			options = append(options, nats.SetCustomDialer(&throttledDialer{
				Dialer: net.Dialer{Timeout: dialTimeout}, intake: intake,
			}))
		}
		return connection.Connect(config.NATS, name, options...)
	}
	options = append(options, nats.Name(name), nats.InProcessServer(s.embedded.nats),
		nats.ReconnectWait(50*time.Millisecond),
		nats.ReconnectJitter(10*time.Millisecond, 10*time.Millisecond),
		s.embedded.accounts.option(purpose.ofClients()))
	if purpose == asking {
		options = append(options, nats.CustomInboxPrefix(access.AskingInbox))
	}
	if intake != nil {
		options = append(options, nats.InProcessServer(&throttledNATS{s.embedded.nats, intake}))
	}
	nc, err := nats.Connect("", options...)
	if err != nil {
		return nil, fmt.Errorf("server: connection to the embedded NATS: %w", err)
	}
	return nc, nil
}

// disconnect closes those of the server's own connections that there are.
func (s *Server) disconnect() {
	for _, nc := range []*nats.Conn{s.conn, s.followers, s.asking} {
		if nc != nil {
			nc.Close()
		}
	}
}
