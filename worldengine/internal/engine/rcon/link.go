package rcon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
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
	conn       net.Conn
	reader     *bufio.Reader // of conn
	timeout    time.Duration // of each exchange
	quiet      time.Duration // after which a command may have no answer
	lastID     int32
	lateMarker int32 // the end marker whose answer may still come; 0 for none
}

// dial connects, within the timeout.
func dial(ctx context.Context, address string, timeout, quiet time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("dial %s: %w", address, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("rcon: cannot connect: %w", err)
	}
	return &link{
		conn: conn, reader: bufio.NewReader(conn), timeout: timeout, quiet: quiet,
	}, nil
}

// login sends the password. A repeated login changes nothing.
func (l *link) login(ctx context.Context, password string) error {
	return l.exchangeUntil(ctx, func() error {
		id := l.nextID()
		if _, err := l.send(packet{id, kindLogin, password}); err != nil {
			return err
		}
		p, err := l.read()
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

// command runs one command and returns its response. After an error, sent reports whether the command
// may have reached the server.
func (l *link) command(ctx context.Context, line string) (response string, sent bool, err error) {
	err = l.exchangeUntil(ctx, func() error {
		id := l.nextID()
		var err error
		if sent, err = l.send(packet{id, kindCommand, line}); err != nil {
			return err
		}
		response, err = l.response(id)
		return err
	})
	return response, sent, err
}

// response reads the response to the request id, which may have several packets, or none.
//
// Nothing marks the last packet. A packet that is not full is the last one. After a full packet, and
// after silence, response sends an end marker: a request that is no command. Consoles answer requests
// in order, so the marker's answer ("Unknown request 0") comes after the rest of the response. If it
// comes first, the response is empty: Forge sends no packet then, and vanilla an empty one. The
// marker must not be sent together with the command: vanilla closes the connection if it reads two
// packets at once.
func (l *link) response(id int32) (string, error) {
	p, end, err := l.first(id)
	switch {
	case err != nil || p.id != id:
		return "", err
	case len(p.body) < fullBody:
		l.lateMarker = end
		return p.body, nil
	case end == 0:
		if end, err = l.mark(); err != nil {
			return "", err
		}
	}
	var text strings.Builder
	for p.id == id {
		if text.WriteString(p.body); text.Len() > maxResponse {
			return "", fmt.Errorf("%w: a response has more than %d bytes", ErrProtocol, maxResponse)
		}
		if p, err = l.receive(id, end); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// first reads the first answer to the request id. If none comes for l.quiet, it sends the end marker
// end, whose answer it takes too; else end is 0.
func (l *link) first(id int32) (p packet, end int32, err error) {
	for {
		if end == 0 && l.silent() {
			if end, err = l.mark(); err != nil {
				return p, end, err
			}
		}
		late := l.lateMarker
		p, err = l.receive(id, end)
		if l.lateMarker = 0; err != nil || p.id != late {
			return p, end, err
		}
	}
}

// silent reports whether nothing comes for l.quiet. It consumes nothing.
func (l *link) silent() bool {
	_ = l.conn.SetReadDeadline(time.Now().Add(l.quiet)) // fails if conn is closed, as does reading
	_, err := l.reader.Peek(1)
	_ = l.conn.SetReadDeadline(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// mark sends an end marker.
func (l *link) mark() (end int32, err error) {
	end = l.nextID()
	_, err = l.send(packet{end, kindResponse, ""})
	return end, err
}

// receive reads an answer to the request id, to the end marker end unless that is 0, or to a late one.
func (l *link) receive(id, end int32) (packet, error) {
	p, err := readPacket(l.reader)
	if err != nil {
		return packet{}, err
	}
	expected := p.id == id || p.id == end || p.id == l.lateMarker
	if p.kind != kindResponse || p.id == 0 || !expected {
		return packet{}, fmt.Errorf("%w: it answered request %d with id %d of kind %d",
			ErrProtocol, id, p.id, p.kind)
	}
	return p, nil
}

// read reads a packet that is no late answer to an end marker.
func (l *link) read() (packet, error) {
	p, err := readPacket(l.reader)
	if err == nil && l.lateMarker != 0 && p.id == l.lateMarker && p.kind == kindResponse {
		l.lateMarker = 0
		return readPacket(l.reader)
	}
	return p, err
}

// send writes p in one piece, as vanilla requires. sent reports whether any byte was written.
func (l *link) send(p packet) (sent bool, err error) {
	n, err := l.conn.Write(p.wire())
	if err != nil {
		return n > 0, connectionLost(err)
	}
	return true, nil
}

// exchangeUntil bounds an exchange by the timeout and by ctx: when either ends, exchangeUntil closes the
// connection, which ends the exchange. If an exchange ends at the same moment, the connection may
// be closed although exchangeUntil returns nil.
func (l *link) exchangeUntil(ctx context.Context, exchange func() error) error {
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
