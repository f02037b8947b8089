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

// alertsListCommand lists alerts.
type alertsListCommand struct {
	Open  bool   `help:"Leave out acknowledged alerts."`
	Limit int    `help:"Maximum number of alerts, ${default} by default." default:"50"`
	After uint64 `help:"Continue a list after the place that it printed."`
}

func (alertsListCommand) Help() string {
	return `Lists the alerts of the last 30 days, the newest first, with their numbers and with who
acknowledged them. With -o json it prints the server's reply. watch --alerts shows alerts as they
come. Requires the role operator or observer.

Examples:

    handoffctl alerts list --limit 10
    handoffctl alerts list --open`
}

// maxAlertPage is how many alerts one request may ask for.
const maxAlertPage = 200

func (c *alertsListCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 || c.Limit > maxAlertPage {
		return usagef("--limit must be 1 to %d, not %d", maxAlertPage, c.Limit)
	}
	request := messages.AlertList{After: c.After, Limit: c.Limit, Open: c.Open}
	return ask(ctx, a, wire.AlertList, request, func(t table, page *messages.Alerts) {
		list(t, "ALERT\tAT\tSEVERITY\tCODE\tRUN\tACKNOWLEDGED\tMESSAGE", page.Alerts,
			func(alert *messages.Alert) []any {
				by, message := "", alert.Message
				if alert.Acknowledged != nil {
					by = "by " + show(alert.Acknowledged.By)
				}
				if alert.More > 0 {
					message = fmt.Sprintf("%s, and %d more of the run", show(message), alert.More)
				}
				return []any{alert.Seq, alert.At, alert.Severity, alert.Code, alert.RunID, by,
					message}
			})
		if page.Next > 0 {
			t.linef("there are older ones: --after %d", page.Next)
		}
	})
}

// alertsAckCommand acknowledges alerts.
type alertsAckCommand struct {
	Alerts []uint64    `arg:"" name:"alert" help:"Numbers of the alerts in alerts list."`
	Signal signalFlags `embed:""`
}

func (alertsAckCommand) Help() string {
	return `Records that an operator has dealt with alerts. handoffctl status no longer counts them,
alerts list --open leaves them out, and every server and the console show who acknowledged them,
when and why. Only the first acknowledgement of an alert counts. The same problem later raises
another alert. Requires the role operator.

Example:

    handoffctl alerts ack 17 18 --reason "looked at in the game: it was applied" --actor ada`
}

// Run acknowledges them, one by one, up to the first that is refused.
func (c *alertsAckCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	all := []*client.Alert{}
	for _, seq := range c.Alerts {
		alert, err := server.AcknowledgeAlert(ctx, seq, c.Signal.actor(a), c.Signal.Reason)
		if err != nil {
			return fmt.Errorf("alert %d: %w", seq, err)
		}
		all = append(all, alert)
		if by := alert.Acknowledged; by != nil && !a.json() {
			if err := a.printf("alert %d, %s: acknowledged by %s at %s: %s\n", seq, alert.Code,
				show(by.By), show(by.At), orDash(by.Reason)); err != nil {
				return err
			}
		}
	}
	if a.json() {
		return a.printJSON(map[string]any{"alerts": all})
	}
	return nil
}

// watchAlerts shows the stream of alerts, or only new alerts if the user may not read the stream.
func (c *watchCommand) watchAlerts(ctx context.Context, a *app) error {
	closed := make(chan struct{})
	nc, err := a.dialStreams("handoffctl watch", nats.MaxReconnects(-1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return err
	}
	alerts := make(chan []byte)
	give := func(data []byte) {
		select {
		case alerts <- data:
		case <-closed:
		}
	}
	id, err := a.whoIs(ctx, nc)
	if err != nil {
		return err
	}
	switch denied := mayReadStreams(&id, "watch the past"); {
	case denied == nil:
		err = c.readAlerts(ctx, a, nc, give)
	case c.Since > 0:
		err = denied
	default:
		err = hearAlerts(a, nc, &id, give)
	}
	view := &eventView{app: a}
	for shown := 0; err == nil && (c.MaxCount == 0 || shown < c.MaxCount); shown++ {
		select {
		case data := <-alerts:
			err = view.printAlert(data)
		case <-closed:
			err = unavailablef("CONNECTION", nil, "the server has closed the connection; start "+
				"watch again when it serves")
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// readAlerts gives the alerts of the stream. "From now on" begins at the next sequence: a consumer
// that is made again before the first alert must not begin at a later time.
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
		return unavailablef("NO_EVENTS", err, "there is no stream %s on this NATS: check --world "+
			"and --server", name)
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects:    []string{wire.AlertSubject(a.flags.World, "*")},
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       stream.CachedInfo().State.LastSeq + 1,
		InactiveThreshold: time.Minute, // after which the server discards the consumer
	}
	if c.Since > 0 {
		from := time.Now().Add(-c.Since)
		config.DeliverPolicy = jetstream.DeliverByStartTimePolicy
		config.OptStartSeq, config.OptStartTime = 0, &from
	}
	consumer, err := stream.OrderedConsumer(ctx, config)
	if err == nil {
		// It ends with the connection: its own Stop waits for a server that is away.
		_, err = consumer.Consume(func(msg jetstream.Msg) { give(msg.Data()) })
	}
	if err != nil {
		return unavailable("NO_EVENTS", err)
	}
	return nil
}

// hearAlerts gives the alerts that are published from now on. It misses the alerts while the
// connection is lost, and prints a note.
func hearAlerts(a *app, nc *nats.Conn, id *messages.Identity, give func([]byte)) error {
	subject := wire.AlertSubject(a.flags.World, "*")
	_, err := nc.Subscribe(subject, func(msg *nats.Msg) { give(msg.Data) })
	if err == nil {
		err = nc.Flush() // after any refusal
	}
	if err != nil {
		return unavailable("NO_EVENTS", err)
	}
	if errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		return unavailablef(permissionDenied, nil,
			"the user %s has the role %s, which may not listen to %s", id.User, id.Role, subject)
	}
	fmt.Fprintf(a.err,
		"handoffctl: the role %s watches what is published from now on, and not the past\n",
		id.Role)
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
	return nil
}
