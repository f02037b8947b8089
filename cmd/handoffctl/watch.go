package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// watchCommand shows run events, or alerts, as they come.
type watchCommand struct {
	Alerts   bool          `help:"Show operational alerts instead of events." xor:"town,run,type"`
	Town     string        `help:"Show only the events of this town." xor:"town"`
	Type     string        `help:"Show only the events of this type, such as RunCompleted." xor:"type"`
	RunID    string        `name:"run" help:"Show only the events of this run." xor:"run"`
	Since    time.Duration `help:"Begin with the events of this age, such as 10m."`
	MaxCount int           `name:"limit" aliases:"count" help:"End after this many events; 0 to go on until Ctrl-C."`
	Idle     time.Duration `name:"until-idle" help:"End if no event comes for this time, such as 2s, and no command is being applied." placeholder:"DURATION"`
}

func (watchCommand) Help() string {
	return `Shows the run events of the world as they come, one on each line, until Ctrl-C. After an
outage of the server it goes on with the first event that it has not shown. A line with the date
comes before the first event of each day. With -o json it prints one RunEventRecord on each line.
Text output also shows changes by town put and town patch as TownPut, and repairs by fsck --repair
as TownMended; they are no run events, and --limit does not count them.

With --alerts it shows the alerts instead. A user who may not read their stream, such as an
observer, sees only new alerts, and a note if the connection was lost. With --until-idle a script
can wait until the handoffs that it has sent are done.

Examples:

    handoffctl watch --since 1m --until-idle 2s
    handoffctl watch --town town-threatened --type RunCompleted
    handoffctl watch --alerts --since 24h`
}

// Run shows events until ctx is done, or enough were shown.
func (c *watchCommand) Run(ctx context.Context, a *app) error {
	var err error
	if c.RunID, err = a.runID(ctx, c.RunID, false); err != nil {
		return err
	}
	if c.Alerts {
		err = c.watchAlerts(ctx, a)
	} else {
		err = c.watchEvents(ctx, a)
	}
	if ctx.Err() != nil { // it was asked to end
		return nil
	}
	return err
}

// watchEvents shows the events of commits.
func (c *watchCommand) watchEvents(ctx context.Context, a *app) error {
	nc, err := a.dial("handoffctl watch", nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	server := a.client(nc)
	// A world that nobody serves is an error now, and an interruption later.
	var end messages.EventListReply
	_, err = server.Ask(ctx, wire.EventList, messages.EventListRequest{TownID: c.Town}, &end)
	if err != nil {
		return err
	}
	follow := client.Follow{TownID: c.Town, After: end.Cursor}
	if c.Since > 0 {
		follow.After, follow.From = "", time.Now().Add(-c.Since)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	idle := c.untilIdle(ctx, server, follow.After, stop)
	view, shown := &eventView{app: a}, 0
	for commit, err := range server.Commits(ctx, follow) {
		idle(commit.Cursor)
		if lost, ok := errors.AsType[*client.LossError](err); ok {
			fmt.Fprintln(a.err, "handoffctl:", sentence(lost))
			continue
		}
		if err == nil {
			err = c.show(ctx, view, server, &commit, &shown)
		}
		if err != nil || c.MaxCount > 0 && shown >= c.MaxCount {
			return err
		}
	}
	return nil
}

// silences multiplies --until-idle until a watch has seen its first commit.
const silences = 10

// untilIdle calls stop when no commit has been seen for --until-idle, none follows the cursor of the
// last one, and no command is being applied. The caller reports each commit by the returned function.
func (c *watchCommand) untilIdle(
	ctx context.Context, server *client.Client, cursor string, stop func(),
) (seen func(cursor string)) {
	if c.Idle <= 0 {
		return func(string) {}
	}
	at := make(chan string)
	go func() {
		for silent := 1; ; silent++ {
			select {
			case <-ctx.Done():
				return
			case cursor = <-at:
				silent = 0
			case <-time.After(c.Idle):
				if cursor == "" && silent < silences {
					continue
				}
				// A user who may not ask sees the silence alone.
				var next messages.EventListReply
				if cursor != "" {
					_, _ = server.Ask(ctx, wire.EventList, messages.EventListRequest{
						After: cursor, TownID: c.Town, Limit: 1}, &next)
				}
				var r messages.Control
				_, _ = server.Ask(ctx, wire.ControlGet, messages.Signal{TownID: c.Town}, &r)
				if len(next.Commits) == 0 && r.Applying == 0 {
					stop()
				}
			}
		}
	}()
	return func(cursor string) {
		select {
		case at <- cursor:
		case <-ctx.Done():
		}
	}
}

// show shows the wanted events of a commit, up to MaxCount, or a change of a town without events.
func (c *watchCommand) show(
	ctx context.Context, view *eventView, server *client.Client, commit *messages.Commit, shown *int,
) error {
	if c.RunID == "" && c.Type == "" && !view.json() && changeNames[commit.Cause] != "" {
		if change, is := server.ChangeOf(ctx, commit); is {
			return view.printChange(&change)
		}
	}
	for _, data := range commit.Events {
		var e runevents.Record
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("an event of the server cannot be read: %w", err)
		}
		if cmp.Or(c.RunID, e.RunID) != e.RunID ||
			c.Type != "" && c.Type != string(e.EventType) {
			continue
		}
		var err error
		if view.json() {
			err = view.printRaw(data)
		} else {
			err = view.printEvent(commit.TownID, &e)
		}
		if err != nil {
			return err
		}
		if *shown++; *shown == c.MaxCount {
			break
		}
	}
	return nil
}
