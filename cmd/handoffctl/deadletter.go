package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/bus"
	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// deadLetterListCommand lists dead letters.
type deadLetterListCommand struct {
	limitFlag `embed:""`
}

func (deadLetterListCommand) Help() string {
	return `Lists what could not be brought onto the bus (handoffd --bus jetstream), the oldest first: from
which message of the log, and why. It needs the rights of an operator.

Example:

    handoffctl deadletter list`
}

// deadLetter is a dead letter; its number is its sequence in the stream.
type deadLetter struct {
	Number  uint64    `json:"number"`
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"`
	LogSeq  uint64    `json:"logSeq"`
	Part    uint64    `json:"part"`
	Subject string    `json:"subject"`
	Reason  string    `json:"reason"`
	// Size is the size of a body which was too large for a dead letter, and Body is the letter's.
	Size uint64         `json:"size,omitzero"`
	Body jsontext.Value `json:"body,omitzero"`
}

func (c *deadLetterListCommand) Run(ctx context.Context, a *app) error {
	letters := []deadLetter{}
	err := a.eachDeadLetter(ctx, func(msg *jetstream.RawStreamMsg) error {
		letters = append(letters, letterOf(msg))
		return nil
	})
	if err != nil && !client.IsCode(err, noBus) {
		return err
	}
	if c.Limit > 0 {
		letters = letters[:min(uint(len(letters)), c.Limit)]
	}
	return a.print(map[string]any{"letters": letters}, func(t table) {
		if len(letters) == 0 {
			t.linef("there is no dead letter")
			return
		}
		t.linef("LETTER\tAT\tSTREAM\tLOG\tPART\tREASON")
		for i := range letters {
			l := &letters[i]
			t.row(l.Number, l.At.UTC().Format(time.RFC3339), l.Stream, l.LogSeq, l.Part, l.Reason)
		}
	})
}

// deadLetterShowCommand shows a dead letter.
type deadLetterShowCommand struct {
	Number uint64 `arg:"" help:"The letter: its number in deadletter list."`
}

func (deadLetterShowCommand) Help() string {
	return `Shows a dead letter with its body: the message as it should have stood on the bus, or
the record of the log that cannot be read. With -o raw it prints the very bytes of the body.

Example:

    handoffctl deadletter show 1`
}

func (c *deadLetterShowCommand) Run(ctx context.Context, a *app) error {
	stream, err := a.deadLetters(ctx)
	if err != nil {
		return err
	}
	var msg *jetstream.RawStreamMsg
	if stream != nil {
		msg, err = stream.GetMsg(ctx, c.Number)
	}
	switch {
	case stream == nil, errors.Is(err, jetstream.ErrMsgNotFound):
		return usagef("there is no dead letter %d", c.Number)
	case err != nil:
		return unavailable("NO_DEAD_LETTERS", err)
	case a.raw():
		return a.printRaw(msg.Data)
	}
	letter := letterOf(msg)
	if letter.Body = msg.Data; !letter.Body.IsValid() {
		letter.Body, _ = jsontext.AppendQuote(nil, string(msg.Data)) // replaces invalid UTF-8
	}
	return a.print(letter, func(t table) {
		t.row("letter", letter.Number)
		t.row("at", letter.At.UTC().Format(time.RFC3339))
		t.row("stream", letter.Stream)
		t.linef("log\tsequence %d, part %d", letter.LogSeq, letter.Part)
		t.row("subject", letter.Subject)
		t.row("reason", letter.Reason)
		if letter.Size > 0 {
			t.linef("size\t%d bytes, which no message may have", letter.Size)
		}
		t.linef("body\t%s", show(string(msg.Data)))
	})
}

// noBus is the code of the error for a world without a bus, which has no dead letters either.
const noBus = "NO_BUS"

// deadLetters returns the stream of dead letters; nil before the first one, which makes it. The
// error has the code noBus if the world has no bus.
func (a *app) deadLetters(ctx context.Context) (jetstream.Stream, error) {
	nc, err := a.openStreams(ctx, "handoffctl deadletter", "look at dead letters")
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	if _, err = commitlog.OpenLog(ctx, js, a.flags.World); err == nil {
		_, err = js.Stream(ctx, wire.EventStream(a.flags.World))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, unavailablef(noBus, err,
			"the world %s has no bus: a server with --bus jetstream makes it", a.flags.World)
	}
	if err != nil {
		return nil, a.streamError(err, nil, "NO_DEAD_LETTERS", "")
	}
	stream, err := js.Stream(ctx, wire.DeadLetterStream(a.flags.World))
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, unavailable("NO_DEAD_LETTERS", err)
	}
	return stream, nil
}

// eachDeadLetter calls do for each dead letter, the oldest first.
func (a *app) eachDeadLetter(ctx context.Context, do func(*jetstream.RawStreamMsg) error) error {
	stream, err := a.deadLetters(ctx)
	if err != nil || stream == nil {
		return err
	}
	if err := commitlog.Each(ctx, stream, jetstream.ConsumerConfig{}, do); err != nil {
		return unavailable("NO_DEAD_LETTERS", err)
	}
	return nil
}

func letterOf(msg *jetstream.RawStreamMsg) deadLetter {
	count := func(name string) uint64 {
		n, _ := strconv.ParseUint(msg.Header.Get(name), 10, 64) // 0 if the header is missing
		return n
	}
	l := deadLetter{
		Number: msg.Sequence, At: msg.Time, LogSeq: count(wire.LogSeqHeader),
		Part: count(wire.LogPartHeader), Subject: msg.Header.Get(wire.OriginalSubjectHeader),
		Reason: msg.Header.Get(wire.DeadLetterReasonHeader), Size: count(wire.OriginalSizeHeader),
	}
	if tokens := strings.Split(msg.Subject, "."); len(tokens) > 3 {
		l.Stream = tokens[3]
	}
	return l
}

// deadLetterReplayCommand brings dead letters onto the bus.
type deadLetterReplayCommand struct {
	Numbers []uint64    `arg:"" optional:"" name:"number" help:"The letters: their numbers in deadletter list."`
	All     bool        `help:"Replay every letter."`
	Signal  signalFlags `embed:""`
}

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
	err = a.print(map[string]any{"letters": letters}, func(t table) {
		if len(letters) == 0 {
			t.linef("there is no dead letter")
			return
		}
		t.linef("LETTER\tREPLAYED\tALERTS ACKNOWLEDGED")
		for _, l := range letters {
			replayed := a.coloured("yes", good)
			if !l.Replayed {
				replayed = a.coloured("no", bad)
			}
			t.row(l.Number, replayed, l.AlertsAcknowledged)
		}
	})
	if err != nil {
		return err
	}
	staying := 0
	for _, l := range letters {
		if !l.Replayed {
			staying++
		}
	}
	if staying > 0 {
		return failedf("%d of %d dead letters stay: the stream refuses the event again, or its "+
			"record of the log is damaged or gone", staying, len(letters))
	}
	return nil
}

// chosen returns the letters to replay.
func (c *deadLetterReplayCommand) chosen(ctx context.Context, a *app) ([]letterReplay, error) {
	letters, unknown := []letterReplay{}, slices.Clone(c.Numbers)
	err := a.eachDeadLetter(ctx, func(msg *jetstream.RawStreamMsg) error {
		seq := msg.Sequence
		if c.All || slices.Contains(c.Numbers, seq) {
			letters = append(letters, letterReplay{Number: seq, Subject: msg.Subject})
		}
		unknown = slices.DeleteFunc(unknown, func(n uint64) bool { return n == seq })
		return nil
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
	subjects := make([]string, len(letters))
	for i := range letters {
		subjects[i] = letters[i].Subject
	}
	ctx = heedViolations(ctx, nc)
	replayed, err := bus.Replay(ctx, bus.Config{
		Conn: nc, World: a.flags.World, Logger: slog.New(slog.NewTextHandler(a.err, nil)),
	}, subjects)
	if err != nil {
		return a.streamError(err, context.Cause(ctx), "BUS_UNAVAILABLE", "replay dead letters, "+
			"which writes to the streams of the world and takes the role engine")
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
