package server

import (
	"net"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/service"
)

// dialTimeout bounds how long connecting to an existing NATS may take, as for the other
// connections.
const dialTimeout = 5 * time.Second

// throttledNATS makes connections to the embedded NATS that are read from as far as an intake has
// room.
type throttledNATS struct {
	nats   *natsserver.Server
	intake *service.Intake
}

// InProcessConn implements nats.InProcessConnProvider.
func (t *throttledNATS) InProcessConn() (net.Conn, error) {
	conn, err := t.nats.InProcessConn()
	if err != nil {
		return nil, err
	}
	return t.intake.Wrap(conn), nil
}

// throttledDialer does so to an existing NATS.
type throttledDialer struct {
	net.Dialer
	intake *service.Intake
}

// Dial implements nats.CustomDialer.
func (t *throttledDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := t.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return t.intake.Wrap(conn), nil
}
