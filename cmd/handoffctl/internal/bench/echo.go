package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// startEcho starts a responder on nc that answers every request with size bytes, and returns its
// subject. It is plain NATS: no service, no work, one subscription.
func startEcho(nc *nats.Conn, size int) (subject string, err error) {
	subject, body := nc.NewInbox(), make([]byte, size)
	for i := range body {
		body[i] = 'x'
	}
	_, err = nc.Subscribe(subject, func(request *nats.Msg) { _ = request.Respond(body) })
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		return "", fmt.Errorf("bench: the echo cannot be started: %w", err)
	}
	return subject, nil
}

// echoer sends plain requests, one at a time.
type echoer struct {
	nc        *nats.Conn
	subject   string
	data      []byte
	replySize int
	timeout   time.Duration
	latencies []time.Duration
}

// run sends requests until the deadline, and at least one.
func (e *echoer) run(ctx context.Context, deadline time.Time) error {
	e.latencies = make([]time.Duration, 0, 1<<16)
	for {
		start := time.Now()
		if len(e.latencies) > 0 && !start.Before(deadline) || ctx.Err() != nil {
			return ctx.Err()
		}
		reply, err := e.nc.Request(e.subject, e.data, e.timeout)
		if err != nil {
			return unanswered(err, e.timeout)
		}
		if len(reply.Data) != e.replySize {
			return fmt.Errorf("bench: the echo answered with %d bytes instead of %d",
				len(reply.Data), e.replySize)
		}
		e.latencies = append(e.latencies, time.Since(start))
	}
}
