package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/engine/bus"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

// deadLetter is a dead letter; its number is its sequence in the stream.
type deadLetter struct {
	Number  uint64    `json:"number"`
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"`
	LogSeq  uint64    `json:"logSeq"`
	Part    uint64    `json:"part"`
	Subject string    `json:"subject"`
	Reason  string    `json:"reason"`
	// Size is the size of a body that was too large to be kept; Body is the kept body.
	Size uint64         `json:"size,omitzero"`
	Body jsontext.Value `json:"body,omitzero"`

	own string // subject of the dead letter itself; Subject is the event's
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
		own: msg.Subject,
	}
	if tokens := strings.Split(msg.Subject, "."); len(tokens) > 3 {
		l.Stream = tokens[3]
	}
	return l
}

// letters are the dead letters of a world.
type letters struct {
	ctx    context.Context // of openStreams
	js     jetstream.JetStream
	stream jetstream.Stream // nil if the world has had no dead letter
	list   []deadLetter     // without their bodies, the oldest first
}

// noBus is the code of the error for a world without a bus, which has no dead letters either.
const noBus = "NO_BUS"

// openLetters opens and lists the dead letters. If the world has no bus, the error has the code
// noBus.
func (a *app) openLetters(ctx context.Context) (*letters, error) {
	ctx, js, err := a.openStreams(ctx, "handoffctl deadletter")
	if err != nil {
		return nil, err
	}
	l := &letters{ctx: ctx, js: js, list: []deadLetter{}}
	if _, err = commitlog.OpenLog(ctx, js, a.flags.World); err == nil {
		_, err = js.Stream(ctx, wire.EventStream(a.flags.World))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, unavailablef(noBus, err,
			"the world %s has no bus: a server with --bus jetstream makes it", a.flags.World)
	}
	if err == nil {
		l.stream, err = js.Stream(ctx, wire.DeadLetterStream(a.flags.World))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return l, nil
	}
	if err == nil {
		_, err = commitlog.Each(ctx, l.stream, 0, func(msg *jetstream.RawStreamMsg) error {
			l.list = append(l.list, letterOf(msg))
			return nil
		})
	}
	if err != nil {
		return nil, a.streamError(ctx, err, "NO_DEAD_LETTERS")
	}
	return l, nil
}

type deadLetterListCommand struct {
	limitFlag `embed:""`
}

func (c *deadLetterListCommand) Run(ctx context.Context, a *app) error {
	l, err := a.openLetters(ctx)
	if client.IsCode(err, noBus) {
		l, err = &letters{list: []deadLetter{}}, nil
	}
	if err != nil {
		return err
	}
	found := l.list
	if c.Limit > 0 {
		found = found[:min(uint(len(found)), c.Limit)]
	}
	return printList(a, "letters", found, "LETTER\tAT\tSTREAM\tLOG\tPART\tREASON", func(l *deadLetter) []any {
		return []any{l.Number, l.At.UTC().Format(time.RFC3339), l.Stream, l.LogSeq, l.Part, l.Reason}
	})
}

type deadLetterShowCommand struct {
	Number uint64 `arg:"" help:"Number of the letter in deadletter list."`
}

func (c *deadLetterShowCommand) Run(ctx context.Context, a *app) error {
	l, err := a.openLetters(ctx)
	if err != nil {
		return err
	}
	if _, err := chosen(l.list, []uint64{c.Number}); err != nil {
		return err
	}
	msg, err := l.stream.GetMsg(l.ctx, c.Number)
	if err != nil {
		return a.streamError(l.ctx, err, "NO_DEAD_LETTERS")
	}
	if a.raw() {
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

// deadLetterReplayCommand publishes dead letters on the bus.
type deadLetterReplayCommand struct {
	Numbers []uint64    `arg:"" optional:"" name:"number" help:"Numbers of the letters in deadletter list."`
	All     bool        `help:"Replay every letter."`
	Signal  signalFlags `embed:""`
}

// letterReplay is a dead letter, and whether it was replayed.
type letterReplay struct {
	Number   uint64 `json:"number"`
	Subject  string `json:"subject"`
	Replayed bool   `json:"replayed"`
	// AlertsAcknowledged is how many alerts about it were acknowledged.
	AlertsAcknowledged int `json:"alertsAcknowledged"`
}

func (c *deadLetterReplayCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	if c.All == (len(c.Numbers) > 0) {
		return usagef("give the numbers of the letters, or --all")
	}
	l, err := a.openLetters(ctx)
	if err != nil {
		return err
	}
	wanted, err := chosen(l.list, c.Numbers)
	if err != nil {
		return err
	}
	staying := 0
	if len(wanted) > 0 {
		if staying, err = l.replay(a, wanted); err != nil {
			return err
		}
		if err := c.acknowledge(ctx, server, c.Signal.actor(a), wanted); err != nil {
			a.notef("the alerts about the letters are not all acknowledged: %s", sentence(err))
		}
	}
	err = printList(a, "letters", wanted, "LETTER\tREPLAYED\tALERTS ACKNOWLEDGED", func(l *letterReplay) []any {
		replayed := a.coloured("yes", good)
		if !l.Replayed {
			replayed = a.coloured("no", bad)
		}
		return []any{l.Number, replayed, l.AlertsAcknowledged}
	})
	return cmp.Or(err, failedIf(staying > 0, "%d of %d dead letters stay: the stream refuses the event again, "+
		"or its record of the log is damaged or gone", staying, len(wanted)))
}

// chosen returns the letters with the numbers, or all letters if there are no numbers.
func chosen(all []deadLetter, numbers []uint64) ([]letterReplay, error) {
	letters, unknown := []letterReplay{}, slices.Clone(numbers)
	for _, l := range all {
		if len(numbers) == 0 || slices.Contains(numbers, l.Number) {
			letters = append(letters, letterReplay{Number: l.Number, Subject: l.own})
		}
		unknown = slices.DeleteFunc(unknown, func(n uint64) bool { return n == l.Number })
	}
	if len(unknown) > 0 {
		return nil, usagef("there is no dead letter %d", unknown[0])
	}
	return letters, nil
}

// replay publishes letters on the bus, marks the accepted ones, and counts the others.
func (l *letters) replay(a *app, wanted []letterReplay) (staying int, err error) {
	subjects := make([]string, len(wanted))
	for i := range wanted {
		subjects[i] = wanted[i].Subject
	}
	replayed, err := bus.Replay(l.ctx, bus.Config{
		Conn: l.js.Conn(), World: a.flags.World, Logger: slog.New(slog.NewTextHandler(a.err, nil)),
	}, subjects)
	if err != nil {
		return 0, a.streamError(l.ctx, err, "BUS_UNAVAILABLE")
	}
	for i := range wanted {
		wanted[i].Replayed = slices.Contains(replayed, wanted[i].Subject)
	}
	return len(wanted) - len(replayed), nil
}

// acknowledge acknowledges the alerts about the letters that were replayed.
func (c *deadLetterReplayCommand) acknowledge(
	ctx context.Context, server *client.Client, actor string, letters []letterReplay,
) error {
	reason := cmp.Or(c.Signal.Reason, "the dead letter was replayed")
	for alert, err := range server.Alerts(ctx, true) {
		if err != nil {
			return err
		}
		i := slices.IndexFunc(letters, func(l letterReplay) bool {
			return l.Replayed && l.Subject == alert.DeadLetter
		})
		if i < 0 {
			continue
		}
		if _, err = server.AcknowledgeAlert(ctx, alert.Seq, actor, reason); err != nil {
			return err
		}
		letters[i].AlertsAcknowledged++
	}
	return nil
}
