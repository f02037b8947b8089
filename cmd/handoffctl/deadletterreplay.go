package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/bus"
	"worldengine/worldengine/commitlog"
)

// deadLetterReplayCommand brings dead letters onto the bus.
type deadLetterReplayCommand struct {
	Numbers []uint64    `arg:"" optional:"" name:"number" help:"The letters: their numbers in deadletter list."`
	All     bool        `help:"Replay every letter."`
	Signal  signalFlags `embed:""`
}

// Help is the command's long help.
func (deadLetterReplayCommand) Help() string {
	return `Empties the stream of the bus and makes it again from the log, with each event in its place:
consumers get all events again, with their ids, and events whose log message has left its history
are gone. Remove the cause first, which deadletter list shows.

A letter is removed, and the alert about it acknowledged, when its event is on the bus. One that is
refused again stays, and so does a record of the log that is damaged or gone. Servers may be running
meanwhile. It takes the role engine, as fsck --repair does. Exits 1 if a letter stays.

Example:

    handoffctl deadletter replay --all`
}

// letterReplay is a dead letter, and whether it was replayed.
type letterReplay struct {
	Number   uint64 `json:"number"`
	Subject  string `json:"subject"`
	Replayed bool   `json:"replayed"`
	// AlertsAcknowledged is how many alerts about it were acknowledged.
	AlertsAcknowledged int `json:"alertsAcknowledged"`
}

// Run replays them.
func (c *deadLetterReplayCommand) Run(ctx context.Context, a *app) error {
	if c.All == (len(c.Numbers) > 0) {
		return usagef("give the numbers of the letters, or --all")
	}
	letters, err := c.chosen(ctx, a)
	if err != nil {
		return err
	}
	if err := c.replay(ctx, a, letters); err != nil {
		return err
	}
	if err := c.acknowledge(ctx, a, letters); err != nil {
		fmt.Fprintf(a.err, "handoffctl: the alerts about the letters are not all acknowledged: "+
			"%s\n", sentence(err))
	}
	if err := c.print(a, letters); err != nil {
		return err
	}
	staying := 0
	for _, l := range letters {
		if !l.Replayed {
			staying++
		}
	}
	if staying > 0 {
		return &failedError{message: fmt.Sprintf("%d of %d dead letters stay: the stream refuses "+
			"the event again, or its record of the log is damaged or gone", staying, len(letters))}
	}
	return nil
}

// chosen returns the letters to replay.
func (c *deadLetterReplayCommand) chosen(ctx context.Context, a *app) ([]letterReplay, error) {
	letters, unknown := []letterReplay{}, slices.Clone(c.Numbers)
	err := a.withDeadLetters(ctx, func(stream jetstream.Stream) error {
		return commitlog.Each(ctx, stream, jetstream.ConsumerConfig{},
			func(msg *jetstream.RawStreamMsg) error {
				seq := msg.Sequence
				if c.All || slices.Contains(c.Numbers, seq) {
					letters = append(letters, letterReplay{Number: seq, Subject: msg.Subject})
				}
				unknown = slices.DeleteFunc(unknown, func(n uint64) bool { return n == seq })
				return nil
			})
	})
	if err == nil && len(unknown) > 0 {
		err = usagef("there is no dead letter %d", unknown[0])
	}
	return letters, err
}

// replay brings the letters onto the bus, and marks those that came there.
func (c *deadLetterReplayCommand) replay(
	ctx context.Context, a *app, letters []letterReplay,
) error {
	if len(letters) == 0 {
		return nil
	}
	nc, err := a.dialStreams("handoffctl deadletter")
	if err != nil {
		return err
	}
	defer nc.Close()
	subjects := make([]string, len(letters))
	for i := range letters {
		subjects[i] = letters[i].Subject
	}
	ctx, violated := heedViolations(ctx, nc)
	replayed, err := bus.Replay(ctx, bus.Config{
		Conn: nc, World: a.flags.World, Logger: slog.New(slog.NewTextHandler(a.err, nil)),
	}, subjects)
	if err != nil {
		return a.streamError(err, violated(), "BUS_UNAVAILABLE", "replay dead letters, which "+
			"writes to the streams of the world and takes the role engine")
	}
	for i := range letters {
		letters[i].Replayed = slices.Contains(replayed, letters[i].Subject)
	}
	return nil
}

// acknowledge acknowledges the alerts about the letters that were replayed.
func (c *deadLetterReplayCommand) acknowledge(
	ctx context.Context, a *app, letters []letterReplay,
) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	for alert, err := range server.Alerts(ctx, true) {
		if err != nil {
			return err
		}
		at := slices.IndexFunc(letters, func(l letterReplay) bool {
			return l.Replayed && l.Subject == alert.DeadLetter
		})
		if at < 0 {
			continue
		}
		if _, err = server.AcknowledgeAlert(ctx, alert.Seq, c.Signal.actor(a),
			cmp.Or(c.Signal.Reason, "the dead letter was replayed")); err != nil {
			return err
		}
		letters[at].AlertsAcknowledged++
	}
	return nil
}

func (c *deadLetterReplayCommand) print(a *app, letters []letterReplay) error {
	if a.json() {
		return a.printJSON(map[string]any{"letters": letters})
	}
	if len(letters) == 0 {
		return a.printf("there is no dead letter\n")
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "LETTER\tREPLAYED\tALERTS ACKNOWLEDGED")
		for _, l := range letters {
			replayed := a.coloured("yes", good)
			if !l.Replayed {
				replayed = a.coloured("no", bad)
			}
			fmt.Fprintf(w, "%d\t%s\t%d\n", l.Number, replayed, l.AlertsAcknowledged)
		}
	})
}
