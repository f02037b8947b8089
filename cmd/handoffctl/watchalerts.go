package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// watchAlerts shows the alerts of their stream, or as they come if the user may not read it.
func (c *watchCommand) watchAlerts(ctx context.Context, a *app) error {
	closed := make(chan struct{})
	nc, err := a.dialStreams("handoffctl watch", nats.MaxReconnects(-1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return err
	}
	defer nc.Close()
	alerts := make(chan []byte)
	give := func(data []byte) {
		select {
		case alerts <- data:
		case <-closed:
		}
	}
	id, err := a.whoIs(ctx, nc)
	switch {
	case err != nil:
	case mayReadStreams(id.Role):
		err = c.readAlerts(ctx, a, nc, give)
	default:
		err = c.hearAlerts(ctx, a, nc, &id, give)
	}
	view := &eventView{app: a}
	for shown := 0; err == nil && (c.MaxCount == 0 || shown < c.MaxCount); shown++ {
		select {
		case data := <-alerts:
			err = view.showAlert(data)
		case <-closed:
			err = &client.UnavailableError{Code: "CONNECTION", Message: "the server has closed " +
				"the connection; start watch again when it serves"}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// readAlerts gives the alerts of the stream. From now on means from the next sequence on: a
// consumer that is made again before the first alert must not begin at a later now.
func (c *watchCommand) readAlerts(
	ctx context.Context, a *app, nc *nats.Conn, give func([]byte),
) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	name := wire.AlertStream(a.flags.World)
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return &client.UnavailableError{
			Code: "NO_EVENTS", Cause: err,
			Message: "there is no stream " + name + " on this NATS: check --world and --server",
		}
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects:    []string{wire.AlertSubject(a.flags.World, "*")},
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       stream.CachedInfo().State.LastSeq + 1,
		InactiveThreshold: time.Minute, // after which the server discards the consumer
	}
	if c.Since > 0 {
		from := time.Now().Add(-c.Since)
		config.DeliverPolicy, config.OptStartSeq,
			config.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &from
	}
	consumer, err := stream.OrderedConsumer(ctx, config)
	if err == nil {
		// it ends with the connection: its own Stop waits for a server that is away
		_, err = consumer.Consume(func(msg jetstream.Msg) { give(msg.Data()) })
	}
	if err != nil {
		return &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	return nil
}

// hearAlerts gives the alerts that are published from now on. Those that come while the connection
// is lost are not given, and a note says so.
func (c *watchCommand) hearAlerts(
	ctx context.Context, a *app, nc *nats.Conn, id *messages.Identity, give func([]byte),
) error {
	if c.Since > 0 {
		return a.mustReadStreams(ctx, nc, "watch the past")
	}
	subject := wire.AlertSubject(a.flags.World, "*")
	_, err := nc.Subscribe(subject, func(msg *nats.Msg) { give(msg.Data) })
	if err == nil {
		err = nc.Flush() // a refusal comes before its answer
	}
	if err == nil && errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		return &client.UnavailableError{Code: permissionDenied, Message: fmt.Sprintf(
			"the user %s has the role %s, which may not listen to %s", id.User, id.Role, subject)}
	}
	if err != nil {
		return &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	fmt.Fprintf(a.err,
		"handoffctl: the role %s watches what is published from now on, and not the past\n",
		id.Role)
	noteGaps(a, nc)
	return nil
}

// noteGaps makes a note of each time for which the connection was lost.
func noteGaps(a *app, nc *nats.Conn) {
	var lost atomic.Pointer[time.Time]
	nc.SetDisconnectErrHandler(func(*nats.Conn, error) {
		now := time.Now()
		lost.CompareAndSwap(nil, &now)
	})
	nc.SetReconnectHandler(func(*nats.Conn) {
		if since := lost.Swap(nil); since != nil {
			fmt.Fprintf(a.err, "handoffctl: the connection was lost for %.1f s: the alerts that "+
				"were published meanwhile are not shown\n", time.Since(*since).Seconds())
		}
	})
}
