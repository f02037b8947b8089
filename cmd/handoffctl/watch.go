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
	"worldengine/worldengine/messages"
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
is shown as TownPut, and what fsck --repair puts back as TownMended; neither is a run event, and
they are not counted. A user who may not read the streams, such as an observer, sees what comes
from now on, and a note where the connection was lost. With --alerts it shows the stream of alerts
instead.

Examples:

    handoffctl watch --town town-threatened --type RunCompleted
    handoffctl watch --alerts --since 24h`
}

// Run shows events until ctx is done.
func (c *watchCommand) Run(ctx context.Context, a *app) error {
	var err error
	if c.RunID, err = a.runID(ctx, c.RunID, false); err != nil {
		return err
	}
	closed := make(chan struct{})
	nc, err := a.dialStreams("handoffctl watch", nats.MaxReconnects(-1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return err
	}
	defer nc.Close()
	events := sightings{make(chan sighting), closed}
	var release func()
	id, err := a.whoIs(ctx, nc)
	if err == nil && c.RunID == "" && c.Type == "" && !c.Alerts && !a.json() {
		err = c.hearChanges(ctx, a, nc, events)
	}
	switch {
	case err != nil:
	case mayReadStreams(id.Role):
		release, err = c.read(ctx, a, nc, events)
	default:
		release, err = c.listen(ctx, a, nc, &id, events)
	}
	switch {
	case ctx.Err() != nil: // it was asked to end before there was anything to show
		return nil
	case err != nil:
		return err
	}
	err = c.follow(ctx, a, events)
	if nc.IsConnected() {
		release()
	}
	return err
}

// sighting is a run event or an alert or, where it has a change, what no run event says.
type sighting struct {
	subject string
	header  nats.Header
	data    []byte
	change  *client.Change
}

// sightings take what was seen, until the connection is closed.
type sightings struct {
	came   chan sighting
	closed <-chan struct{}
}

func (s sightings) give(event sighting) {
	select {
	case s.came <- event:
	case <-s.closed:
	}
}

// read gives the messages of the stream.
func (c *watchCommand) read(
	ctx context.Context, a *app, nc *nats.Conn, events sightings,
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
	config := c.consumer(a.flags.World, stream.CachedInfo().State.LastSeq+1)
	return consume(ctx, stream, config, func(msg jetstream.Msg) {
		events.give(sighting{subject: msg.Subject(), header: msg.Headers(), data: msg.Data()})
	})
}

// hearChanges gives what changes towns from now on and no run event says. While no server serves
// the world, whose events may be of another producer, it waits for one.
func (c *watchCommand) hearChanges(
	ctx context.Context, a *app, nc *nats.Conn, events sightings,
) error {
	server := client.New(nc, a.flags.World)
	server.Timeout = a.flags.Timeout
	var now messages.History
	_, err := server.Ask(ctx, wire.TownHistory, messages.TownHistory{TownID: c.Town, Limit: 1}, &now)
	what := client.FollowChanges{TownID: c.Town}
	switch {
	case client.IsCode(err, "NO_RESPONDERS"):
	case err != nil && !client.IsCode(err, wire.CodeUnknownTown):
		return err
	case len(now.Revisions) > 0:
		what.After = now.Revisions[0].Revision.Revision
	default:
		what.All = true // nothing has been changed yet
	}
	go func() {
		for change, err := range server.Changes(ctx, what) {
			if err != nil && !nc.IsClosed() { // of a closed connection follow tells
				fmt.Fprintf(a.err, "handoffctl: puts and patches are not shown any more: %s; "+
					"start watch again to see them\n", sentence(err))
			}
			if err != nil {
				return
			}
			events.give(sighting{change: &change})
		}
	}()
	return nil
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
	return func() { commitlog.Release(stream, consumer) }, nil
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
			fmt.Fprintf(a.err, "handoffctl: the connection was lost for %.1f s: the events that "+
				"were published meanwhile are not shown\n", time.Since(*since).Seconds())
		}
	})
}

// listen gives what is published from now on, to a user who may not read the streams. What comes
// while the connection is lost is not given, and a note says so.
func (c *watchCommand) listen(
	ctx context.Context, a *app, nc *nats.Conn, id *messages.Identity, events sightings,
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
			events.give(sighting{subject: msg.Subject, header: msg.Header, data: msg.Data})
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
	ctx context.Context, a *app, events sightings,
) error {
	view := &eventView{app: a, alerts: c.Alerts}
	for shown := 0; c.MaxCount == 0 || shown < c.MaxCount; {
		select {
		case event := <-events.came:
			if c.Type != "" && event.header.Get(wire.EventTypeHeader) != c.Type {
				continue
			}
			if err := view.show(&event); err != nil {
				return err
			}
			if event.change == nil {
				shown++
			}
		case <-events.closed:
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
