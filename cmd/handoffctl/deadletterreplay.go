package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// deadLetterReplayCommand brings dead letters onto the bus.
type deadLetterReplayCommand struct {
	Numbers  []uint64      `arg:"" optional:"" name:"number" help:"The letters: their numbers in deadletter list."`
	All      bool          `help:"Replay every letter."`
	Signal   signalFlags   `embed:""`
	Patience time.Duration `help:"How long a derived stream may make no progress before it counts as incomplete." default:"10s"`
}

// Help is the command's long help.
func (deadLetterReplayCommand) Help() string {
	return `Brings dead letters onto the bus when what made the stream refuse them is mended: the
message is made again from the log, in its place, not from the letter. It is a run of fsck --repair
that counts these letters as missing, so it reads the whole log, and repairs what else differs. A
receipt is written by itself. For an event the stream of run events is emptied and made again from
the log: consumers get all events again, with their eventIds, and events whose log message has left
its history are gone.

A letter is removed, and the alert about it acknowledged, when its message is there. One that is
refused again stays as it is, and so does one whose message cannot be made again: a record of the
log that cannot be read, and what has left the log or expired. Servers may be running meanwhile.

Remove the cause first, which deadletter list shows. With an access file the command needs a user
with the role engine; without one, run it on the server's machine. Exits 1 where a letter stays.

Example:

    handoffctl deadletter replay --all`
}

// letterReplay is a dead letter, and whether it was replayed.
type letterReplay struct {
	Number   uint64 `json:"number"`
	Subject  string `json:"subject"`
	Replayed bool   `json:"replayed"`
	// Why says why it stays.
	Why string `json:"why,omitzero"`
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
	report, err := c.replay(ctx, a, letters)
	if err != nil {
		return err
	}
	staying := 0
	for i := range letters {
		l := &letters[i]
		l.Replayed = report.Repair != nil &&
			slices.Contains(report.Repair.LettersReplayed, l.Subject)
		if l.Why = cmp.Or(l.Why, whyItStays(report, l)); !l.Replayed {
			staying++
		}
	}
	c.acknowledge(ctx, a, letters)
	if err := c.print(a, letters, report); err != nil {
		return err
	}
	switch {
	case staying > 0:
		return &failedError{message: fmt.Sprintf("%d of %d dead letters stay", staying,
			len(letters))}
	case !report.Clean():
		return &failedError{message: "the letters are replayed, and something else is wrong: " +
			"handoffctl fsck says what"}
	}
	return nil
}

// chosen returns the letters to replay.
func (c *deadLetterReplayCommand) chosen(ctx context.Context, a *app) ([]letterReplay, error) {
	letters, unknown := []letterReplay{}, slices.Clone(c.Numbers)
	events, _, _ := strings.Cut(wire.EventSubject(a.flags.World, "*", "*"), "*")
	err := a.withDeadLetters(ctx, func(stream jetstream.Stream) error {
		return eachLetter(ctx, stream, func(letter *deadLetter, subject string) {
			if !c.All && !slices.Contains(c.Numbers, letter.Number) {
				return
			}
			unknown = slices.DeleteFunc(unknown, func(n uint64) bool { return n == letter.Number })
			l := letterReplay{Number: letter.Number, Subject: subject}
			if _, _, receipt := wire.ReceiptOf(letter.Subject); !receipt &&
				!strings.HasPrefix(letter.Subject, events) {
				l.Why = "it is a message of the log that cannot be read, so nothing can be made " +
					"of it"
			}
			letters = append(letters, l)
		})
	})
	if err == nil && len(unknown) > 0 {
		err = usagef("there is no dead letter %d", unknown[0])
	}
	return letters, err
}

// replay runs the repair.
func (c *deadLetterReplayCommand) replay(
	ctx context.Context, a *app, letters []letterReplay,
) (*fsck.Report, error) {
	var subjects []string
	for i := range letters {
		if letters[i].Why == "" {
			subjects = append(subjects, letters[i].Subject)
		}
	}
	if len(subjects) == 0 {
		return &fsck.Report{World: a.flags.World}, nil
	}
	nc, err := a.dialStreams("handoffctl deadletter")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	line := a.progressLine()
	defer line.clear()
	report, err := fsck.Run(ctx, nc, a.flags.World, fsck.Options{
		Repair: true, Replay: subjects, Patience: c.Patience, MaxFindings: 1 << 16,
		Logger:   slog.New(slog.NewTextHandler(a.err, nil)),
		Progress: line.showLog,
	})
	if err != nil {
		return nil, a.streamError(err, nc.LastError(), "LOG_UNAVAILABLE", "replay dead letters, "+
			"which writes the streams of the world and takes the role engine")
	}
	return report, nil
}

// whyItStays returns why a letter was not replayed, "" for one that was.
func whyItStays(report *fsck.Report, l *letterReplay) string {
	if l.Replayed {
		return ""
	}
	last := report
	if report.Repair != nil && report.Repair.After != nil {
		last = report.Repair.After
	}
	for i := range last.Findings {
		if last.Findings[i].Kind == fsck.DeadLettered && last.Findings[i].Got == l.Subject {
			return "its stream refuses it again"
		}
	}
	return "what it was made of has left the log, or it would have expired"
}

// acknowledge acknowledges the alerts about the letters that were replayed. They are raised again
// otherwise, so trouble with that is only said.
func (c *deadLetterReplayCommand) acknowledge(ctx context.Context, a *app, letters []letterReplay) {
	bySubject := map[string]*letterReplay{}
	for i := range letters {
		if letters[i].Replayed {
			bySubject[letters[i].Subject] = &letters[i]
		}
	}
	if len(bySubject) == 0 {
		return
	}
	server, err := a.connect()
	if err == nil {
		for alert, listed := range server.Alerts(ctx, true) {
			if err = listed; err != nil {
				break
			}
			l := bySubject[alert.DeadLetter]
			if l == nil {
				continue
			}
			if _, err = server.AcknowledgeAlert(ctx, alert.Seq, c.Signal.actor(a),
				cmp.Or(c.Signal.Reason, "the dead letter was replayed")); err != nil {
				break
			}
			l.AlertsAcknowledged++
		}
	}
	if err != nil {
		fmt.Fprintf(a.err,
			"handoffctl: the alerts about the letters are not all acknowledged: %s\n",
			sentence(err))
	}
}

func (c *deadLetterReplayCommand) print(a *app, letters []letterReplay, report *fsck.Report) error {
	if a.json() {
		return a.printJSON(map[string]any{"letters": letters, "repair": report.Repair})
	}
	if len(letters) == 0 {
		return a.printf("there is no dead letter\n")
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "LETTER\tREPLAYED\tALERTS ACKNOWLEDGED\tWHY IT STAYS")
		for i := range letters {
			l := &letters[i]
			replayed := a.coloured("yes", good)
			if !l.Replayed {
				replayed = a.coloured("no", bad)
			}
			fmt.Fprintf(w, "%d\t%s\t%d\t%s\n", l.Number, replayed, l.AlertsAcknowledged,
				orDash(l.Why))
		}
	})
}
