package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// deadLetterListCommand lists dead letters.
type deadLetterListCommand struct {
	limitFlag `embed:""`
}

// Help is the command's long help.
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

// Run lists them.
func (c *deadLetterListCommand) Run(ctx context.Context, a *app) error {
	letters := []deadLetter{}
	err := a.withDeadLetters(ctx, func(stream jetstream.Stream) error {
		return commitlog.Each(ctx, stream, jetstream.ConsumerConfig{},
			func(msg *jetstream.RawStreamMsg) error {
				letters = append(letters,
					letterOf(msg.Sequence, msg.Time, msg.Subject, msg.Header))
				return nil
			})
	})
	if err != nil && !client.IsCode(err, noBus) {
		return err
	}
	if c.Limit > 0 {
		letters = letters[:min(uint(len(letters)), c.Limit)]
	}
	if a.json() {
		return a.printJSON(map[string]any{"letters": letters})
	}
	if len(letters) == 0 {
		return a.printf("there is no dead letter\n")
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "LETTER\tAT\tSTREAM\tLOG\tPART\tREASON")
		for i := range letters {
			l := &letters[i]
			fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%s\n", l.Number, l.At.UTC().Format(time.RFC3339),
				show(l.Stream), l.LogSeq,
				l.Part, show(l.Reason))
		}
	})
}

// deadLetterShowCommand shows a dead letter.
type deadLetterShowCommand struct {
	Number uint64 `arg:"" help:"The letter: its number in deadletter list."`
}

// Help is the command's long help.
func (deadLetterShowCommand) Help() string {
	return `Shows a dead letter with its body: the message as it should have stood on the bus, or
the record of the log that cannot be read. With -o raw it prints the very bytes of the body.

Example:

    handoffctl deadletter show 1`
}

// Run shows it.
func (c *deadLetterShowCommand) Run(ctx context.Context, a *app) error {
	var letter deadLetter
	var body []byte
	err := a.withDeadLetters(ctx, func(stream jetstream.Stream) error {
		msg, err := stream.GetMsg(ctx, c.Number)
		if err == nil {
			letter, body = letterOf(c.Number, msg.Time, msg.Subject, msg.Header), msg.Data
		}
		return err
	})
	switch {
	case err == nil && letter.Number == 0, errors.Is(err, jetstream.ErrMsgNotFound):
		return usagef("there is no dead letter %d", c.Number)
	case err != nil:
		return err
	case a.raw():
		return a.printRaw(body)
	}
	if letter.Body = body; !letter.Body.IsValid() {
		quoted, _ := jsontext.AppendQuote(nil, string(body)) // what is no UTF-8 is replaced
		letter.Body = quoted
	}
	return a.printAnswer(letter, func(w io.Writer) {
		fmt.Fprintf(w, "letter\t%d\n", letter.Number)
		fmt.Fprintf(w, "at\t%s\n", letter.At.UTC().Format(time.RFC3339))
		fmt.Fprintf(w, "stream\t%s\n", show(letter.Stream))
		fmt.Fprintf(w, "log\tsequence %d, part %d\n", letter.LogSeq, letter.Part)
		fmt.Fprintf(w, "subject\t%s\n", orDash(letter.Subject))
		fmt.Fprintf(w, "reason\t%s\n", show(letter.Reason))
		if letter.Size > 0 {
			fmt.Fprintf(w, "size\t%d bytes, which no message may have\n", letter.Size)
		}
		fmt.Fprintf(w, "body\t%s\n", show(string(body)))
	})
}

// noBus is the code of the error for a world without a bus, which has no dead letters either.
const noBus = "NO_BUS"

// withDeadLetters calls read with the stream of dead letters, if there is one: it is made with the
// first. The error has the code noBus if the world has no bus.
func (a *app) withDeadLetters(ctx context.Context, read func(jetstream.Stream) error) error {
	nc, err := a.dialStreams("handoffctl deadletter")
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := a.mustReadStreams(ctx, nc, "look at dead letters"); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err = commitlog.OpenLog(ctx, js, a.flags.World); errors.Is(err, commitlog.ErrNoWorld) {
		return noWorld(a, err)
	}
	var stream jetstream.Stream
	if err == nil {
		_, err = js.Stream(ctx, wire.EventStream(a.flags.World))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return &client.UnavailableError{Code: noBus, Cause: err, Message: "the world " +
			a.flags.World + " has no bus: a server with --bus jetstream makes it"}
	}
	if err == nil {
		stream, err = js.Stream(ctx, wire.DeadLetterStream(a.flags.World))
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err == nil:
		err = read(stream)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return &client.UnavailableError{Code: "NO_DEAD_LETTERS", Message: sentence(err), Cause: err}
	}
	return err
}

func letterOf(number uint64, at time.Time, subject string, header nats.Header) deadLetter {
	count := func(name string) uint64 {
		n, _ := strconv.ParseUint(header.Get(name), 10, 64) // 0 where it does not say
		return n
	}
	l := deadLetter{
		Number: number, At: at, LogSeq: count(wire.LogSeqHeader), Part: count(wire.LogPartHeader),
		Subject: header.Get(wire.OriginalSubjectHeader),
		Reason:  header.Get(wire.DeadLetterReasonHeader), Size: count(wire.OriginalSizeHeader),
	}
	if tokens := strings.Split(subject, "."); len(tokens) > 3 {
		l.Stream = tokens[3]
	}
	return l
}
