package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/wire"
)

// watchCommand shows run events, or alerts, as they come.
type watchCommand struct {
	Alerts   bool          `help:"Show operational alerts instead of events." xor:"town,run,type"`
	Town     string        `help:"Only the events of this town." xor:"town"`
	Type     string        `help:"Only events of this type, such as RunCompleted." xor:"type"`
	RunID    string        `name:"run" help:"Only the events of this run." xor:"run"`
	Since    time.Duration `help:"Begin with the events of this long ago, such as 10m."`
	MaxCount int           `name:"count" help:"End after this many events; 0 means go on until Ctrl-C."`
}

// Help is the command's long help.
func (watchCommand) Help() string {
	return `Shows the run events of the world as they come, one a line, until Ctrl-C. When the
server was away, watch goes on with the first event that it has not shown. A line with the date
comes before the first event of each day. On a terminal, success is green and failure is red,
unless $NO_COLOR is set, and ids are cut to their first 8 characters; in a pipe nothing is cut.
With -o json it prints one RunEventRecord a line. What town put and town patch change from now on
is shown as TownPut, which is no run event and not counted. A user who may not read the streams,
such as an observer, sees the run events that come from now on, and a note where the connection was
lost. With --alerts it shows the stream of alerts instead.

Examples:

    handoffctl watch --town town-threatened --type RunCompleted
    handoffctl watch --alerts --since 24h`
}

// Run shows events until ctx is done.
func (c *watchCommand) Run(ctx context.Context, a *app) error {
	var err error
	if c.RunID, err = a.findRun(ctx, c.RunID, false); err != nil {
		return err
	}
	closed := make(chan struct{})
	nc, err := a.dialStreams("handoffctl watch", nats.MaxReconnects(-1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return err
	}
	defer nc.Close()
	events := make(chan sighting)
	var release func()
	id, err := a.whoIs(ctx, nc)
	switch {
	case err != nil:
	case mayReadStreams(id.Role):
		release, err = c.read(ctx, a, nc, events, closed)
	default:
		release, err = c.listen(ctx, a, nc, &id, events, closed)
	}
	switch {
	case ctx.Err() != nil: // it was asked to end before there was anything to show
		return nil
	case err != nil:
		return err
	}
	err = c.follow(ctx, a, events, closed)
	if nc.IsConnected() {
		release()
	}
	return err
}

// sighting is a run event or an alert or, where it has a time, a state that was put.
type sighting struct {
	subject string
	header  nats.Header
	data    []byte
	at      time.Time // of what was put
}

// read gives the messages of the stream, and what is put from now on.
func (c *watchCommand) read(
	ctx context.Context, a *app, nc *nats.Conn, events chan<- sighting, closed <-chan struct{},
) (release func(), err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	name := wire.EventStream(a.flags.World)
	if c.Alerts {
		name = wire.AlertStream(a.flags.World)
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, &client.UnavailableError{
			Code: "NO_EVENTS", Cause: err,
			Message: "there is no stream " + name + " on this NATS: check --world and --server",
		}
	}
	give := func(event sighting) {
		select {
		case events <- event:
		case <-closed:
		}
	}
	config := c.consumer(a.flags.World, stream.CachedInfo().State.LastSeq+1)
	second := func() {}
	if !c.Alerts && c.RunID == "" && c.Type == "" && !a.json() {
		// Before the events: once they are followed, a server that goes away is waited for.
		if second, err = c.readPuts(ctx, a, js, give); err != nil {
			return nil, err
		}
	}
	first, err := consume(ctx, stream, config, func(msg jetstream.Msg) {
		give(sighting{subject: msg.Subject(), header: msg.Headers(), data: msg.Data()})
	})
	return func() { first(); second() }, err
}

// readPuts gives what is put from now on.
func (c *watchCommand) readPuts(
	ctx context.Context, a *app, js jetstream.JetStream, give func(sighting),
) (release func(), err error) {
	log, err := js.Stream(ctx, wire.LogStream(a.flags.World))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return func() {}, nil // the events are of another producer
	}
	if err != nil {
		return nil, &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	return consume(ctx, log, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.LogSubject(a.flags.World, c.token())}, HeadersOnly: true,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   log.CachedInfo().State.LastSeq + 1,
	}, func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		kind := commitlog.Kind(msg.Headers().Get(wire.KindHeader))
		if err == nil && kind == commitlog.KindPut {
			give(sighting{subject: msg.Subject() + ".put", header: msg.Headers(),
				at: meta.Timestamp})
		}
	})
}

// consume gives the messages of a stream. They end with the connection: the consumer's own Stop
// waits for a server that is away. release gives the consumer back.
func consume(
	ctx context.Context, stream jetstream.Stream, config jetstream.OrderedConsumerConfig,
	give func(jetstream.Msg),
) (release func(), err error) {
	consumer, err := stream.OrderedConsumer(ctx, config)
	if err == nil {
		_, err = consumer.Consume(give)
	}
	if err != nil {
		return nil, &client.UnavailableError{Code: "NO_EVENTS", Message: sentence(err), Cause: err}
	}
	return func() { follow.Release(stream, consumer) }, nil
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
			fmt.Fprintf(a.err, "handoffctl: the connection was lost for %.1f s: what was "+
				"published meanwhile is not shown\n", time.Since(*since).Seconds())
		}
	})
}

// listen gives what is published from now on, to a user who may not read the streams. What comes
// while the connection is lost is not given, and a note says so.
func (c *watchCommand) listen(
	ctx context.Context, a *app, nc *nats.Conn, id *identity, events chan<- sighting,
	closed <-chan struct{},
) (release func(), err error) {
	if c.Since > 0 {
		return nil, a.mustReadStreams(ctx, nc, "watch the past")
	}
	subjects := c.consumer(a.flags.World, 0).FilterSubjects
	if readable := cmp.Or(strings.Join(id.Read, ""), strings.Join(id.Towns, "")); readable != "" &&
		c.Town == "" && !c.Alerts {
		towns := id.Read
		if len(towns) == 0 {
			towns = id.Towns
		}
		subjects = nil
		for _, townID := range towns {
			subjects = append(subjects, wire.EventSubject(a.flags.World, wire.TownToken(townID),
				cmp.Or(c.RunID, "*")))
		}
	}
	for _, subject := range subjects {
		_, err = nc.Subscribe(subject, func(msg *nats.Msg) {
			select {
			case events <- sighting{subject: msg.Subject, header: msg.Header, data: msg.Data}:
			case <-closed:
			}
		})
		if err == nil {
			err = nc.Flush() // a refusal comes before its answer
		}
		if err == nil && errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
			return nil, &client.UnavailableError{Code: "PERMISSION_DENIED", Message: fmt.Sprintf(
				"the user %s has the role %s, which may not listen to %s", id.User,
				id.Role, subject)}
		}
		if err != nil {
			return nil, &client.UnavailableError{Code: "NO_EVENTS",
				Message: sentence(err), Cause: err}
		}
	}
	fmt.Fprintf(a.err,
		"handoffctl: the role %s watches what is published from now on, and not the past\n",
		id.Role)
	noteGaps(a, nc)
	return func() {}, nil
}

// follow shows events until ctx is done, enough were shown, or the connection is closed for good.
func (c *watchCommand) follow(
	ctx context.Context, a *app, events <-chan sighting, closed <-chan struct{},
) error {
	view := &eventView{app: a, alerts: c.Alerts}
	for shown := 0; c.MaxCount == 0 || shown < c.MaxCount; {
		select {
		case event := <-events:
			if c.Type != "" && event.header.Get(wire.EventTypeHeader) != c.Type {
				continue
			}
			if err := view.show(&event); err != nil {
				return err
			}
			if event.at.IsZero() {
				shown++
			}
		case <-closed:
			return &client.UnavailableError{Code: "CONNECTION", Message: "the server has closed " +
				"the connection; start watch again when it serves"}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// token is the town token of what is watched.
func (c *watchCommand) token() string {
	if c.Town == "" {
		return "*"
	}
	return wire.TownToken(c.Town)
}

// consumer is the consumer of what is watched. From now on means from the sequence next on: a
// consumer that is made again before the first event must not begin at a later now.
func (c *watchCommand) consumer(world string, next uint64) jetstream.OrderedConsumerConfig {
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.EventSubject(world, c.token(), cmp.Or(c.RunID, "*"))},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
	}
	if c.Alerts {
		config.FilterSubjects = []string{wire.AlertSubject(world, "*")}
	}
	if c.Since > 0 {
		from := time.Now().Add(-c.Since)
		config.DeliverPolicy, config.OptStartSeq,
			config.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &from
	}
	return config
}
