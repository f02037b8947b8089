package rcon

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"time"
)

const (
	// fullBody is the size of the smallest body after which the response may have another packet.
	// Vanilla splits after 4,096 characters. Other servers keep a packet, with its head, below 4,096
	// bytes.
	fullBody = 4000
	// maxResponse bounds a whole response.
	maxResponse = 64 << 10
)

// link is a connection to a console. One goroutine uses it at a time. After an error it is closed.
type link struct {
	conn    net.Conn
	timeout time.Duration // of each exchange
	lastID  int32
}

// dial connects, within the timeout.
func dial(ctx context.Context, address string, timeout time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("dial %s: %w", address, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("rcon: cannot connect: %w", err)
	}
	return &link{conn: conn, timeout: timeout}, nil
}

// login sends the password. A repeated login changes nothing.
func (l *link) login(ctx context.Context, password string) error {
	return l.within(ctx, func() error {
		id := l.nextID()
		if _, err := l.send(packet{id, kindLogin, password}); err != nil {
			return err
		}
		p, err := readPacket(l.conn)
		switch {
		case err != nil:
			return err
		case p.kind == kindCommand && p.id == refusedID:
			return ErrLoginRefused
		case p.kind != kindCommand || p.id != id:
			return fmt.Errorf("%w: it answered login %d with id %d of kind %d",
				ErrProtocol, id, p.id, p.kind)
		}
		return nil
	})
}

// command runs one command and returns its response. After an error, left reports whether the command
// may have reached the server.
func (l *link) command(ctx context.Context, line string) (response string, left bool, err error) {
	err = l.within(ctx, func() error {
		id := l.nextID()
		var err error
		if left, err = l.send(packet{id, kindCommand, line}); err != nil {
			return err
		}
		response, err = l.response(id)
		return err
	})
	return response, left, err
}

// response reads the response to the request id, which may have several packets.
//
// Nothing marks the last packet. A packet that is not full is the last one. After a full packet,
// response sends a request that is no command. Vanilla answers requests in order, so the answer
// ("Unknown request 0") comes after the rest of the response. That request must not be sent
// together with the command: vanilla closes the connection if it reads two packets at once.
func (l *link) response(id int32) (string, error) {
	first, err := l.receive(id, id)
	if err != nil || len(first.body) < fullBody {
		return first.body, err
	}
	end := l.nextID()
	if _, err := l.send(packet{end, kindResponse, ""}); err != nil {
		return "", err
	}
	var text strings.Builder
	for p := first; p.id == id; {
		if text.WriteString(p.body); text.Len() > maxResponse {
			return "", fmt.Errorf("%w: a response has more than %d bytes", ErrProtocol, maxResponse)
		}
		if p, err = l.receive(id, end); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// receive reads a response to the request id or end.
func (l *link) receive(id, end int32) (packet, error) {
	p, err := readPacket(l.conn)
	if err != nil {
		return packet{}, err
	}
	if p.kind != kindResponse || p.id != id && p.id != end {
		return packet{}, fmt.Errorf("%w: it answered request %d with id %d of kind %d",
			ErrProtocol, id, p.id, p.kind)
	}
	return p, nil
}

// send writes p in one piece, as vanilla requires. left reports whether any byte was written.
func (l *link) send(p packet) (left bool, err error) {
	n, err := l.conn.Write(p.wire())
	if err != nil {
		return n > 0, lost(err)
	}
	return true, nil
}

// within bounds an exchange by the timeout and by ctx: when either ends, within closes the
// connection, which ends the exchange. If an exchange ends at the same moment, the connection may
// be closed although within returns nil.
func (l *link) within(ctx context.Context, exchange func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, ErrTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, l.close)
	defer stop()
	err := exchange()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (l *link) nextID() int32 {
	l.lastID = l.lastID%math.MaxInt32 + 1
	return l.lastID
}

func (l *link) close() { _ = l.conn.Close() }
