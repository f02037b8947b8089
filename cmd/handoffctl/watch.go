package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/worldengine"
	"worldengine/worldengine/follow"
)

// watchCommand shows run events, or alerts, as they come.
type watchCommand struct {
	Alerts   bool          `help:"Show operational alerts instead of events." xor:"town,run,type"`
	Town     string        `help:"Only the events of this town." xor:"town"`
	Type     string        `help:"Only events of this type, such as RunCompleted." xor:"type"`
	RunID    string        `name:"run" help:"Only the events of this run." xor:"run"`
	Since    time.Duration `help:"Begin with the events of this long ago, such as 10m."`
	MaxCount int           `name:"count" help:"End after this many events; 0 goes on until Ctrl-C."`
}

// Help is the command's long help.
func (watchCommand) Help() string {
	return `Shows what happens in the world, an event a line, until Ctrl-C. It reads the event stream, so it goes
on where it was when the server was away, however long. A line with the date comes before the first
event of each day. What ended well is green and what failed is red, at a terminal and unless $NO_COLOR
is set. With -o json: a RunEventRecord a line. With --alerts it reads the stream of alerts in the same way.

Examples:

    handoffctl watch --town town-threatened --type RunCompleted
    handoffctl watch --alerts --since 24h`
}

// Run shows events until ctx is done.
func (c *watchCommand) Run(ctx context.Context, a *app) error {
	closed := make(chan struct{})
	nc, err := a.dial("handoffctl watch", nats.MaxReconnects(-1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	name := worldengine.EventStream(a.flags.World)
	if c.Alerts {
		name = worldengine.AlertStream(a.flags.World)
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return &client.UnavailableError{
			Code: "NO_EVENTS", Message: "the world " + a.flags.World + " has no stream " + name + " here", Cause: err,
		}
	}
	consumer, err := stream.OrderedConsumer(ctx, c.consumer(a.flags.World, stream.CachedInfo().State.LastSeq+1))
	if err != nil {
		return &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	events := make(chan jetstream.Msg)
	// It is ended by the end of the connection: its own Stop waits for a server that is away.
	_, err = consumer.Consume(func(msg jetstream.Msg) {
		select {
		case events <- msg:
		case <-closed:
		}
	})
	if err != nil {
		return &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	err = c.follow(ctx, a, events, closed)
	if nc.IsConnected() {
		follow.Release(stream, consumer)
	}
	return err
}

// follow shows events until ctx is done, enough were shown, or the connection is closed for good.
func (c *watchCommand) follow(
	ctx context.Context, a *app, events <-chan jetstream.Msg, closed <-chan struct{},
) error {
	view := &eventView{app: a, alerts: c.Alerts}
	for shown := 0; c.MaxCount == 0 || shown < c.MaxCount; {
		select {
		case msg := <-events:
			if c.Type != "" && msg.Headers().Get(worldengine.EventTypeHeader) != c.Type {
				continue
			}
			if err := view.show(msg); err != nil {
				return err
			}
			shown++
		case <-closed:
			return &client.UnavailableError{Code: "CONNECTION", Message: "the server has closed the connection"}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// consumer is the consumer of what is watched. From now on means from the sequence next on: a
// consumer that is made again before the first event must not begin at a later now.
func (c *watchCommand) consumer(world string, next uint64) jetstream.OrderedConsumerConfig {
	token, runID := "*", "*"
	if c.Town != "" {
		token = worldengine.TownToken(c.Town)
	}
	if c.RunID != "" {
		runID = c.RunID
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{worldengine.EventSubject(world, token, runID)},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
	}
	if c.Alerts {
		config.FilterSubjects = []string{worldengine.AlertSubject(world, "*")}
	}
	if c.Since > 0 {
		from := time.Now().Add(-c.Since)
		config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &from
	}
	return config
}
