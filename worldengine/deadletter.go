package worldengine

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// Headers of a dead letter, beside follow.LogSeqHeader, follow.LogPartHeader and those that the
// message itself had.
const (
	// DeadLetterReasonHeader says why the message was given up.
	DeadLetterReasonHeader = "Dead-Letter-Reason"
	// OriginalSubjectHeader is the subject that the message should have had on the bus; that of the
	// log message where that one cannot be read.
	OriginalSubjectHeader = "Original-Subject"
	// OriginalSizeHeader is the size of a body that the dead letter does not have, because no
	// message may be so large. The log has what it was made of, at Log-Seq.
	OriginalSizeHeader = "Original-Size"
)

// maxDeadLetterBytes bounds the stream of dead letters.
const maxDeadLetterBytes = 64 << 20

// maxReason bounds a reason in a header.
const maxReason = 512

// deadLetterConfig is the stream of a world's dead letters. A message has one, however often it is
// given up.
func deadLetterConfig(world string, replicas int) jetstream.StreamConfig {
	config := sideConfig(maxDeadLetterBytes, replicas)
	config.Name = DeadLetterStream(world)
	config.Description = "What could not be brought from the commit log of " + world + " onto its bus"
	config.Subjects = []string{DeadLetterSubject(world, "*", "*", "*")}
	config.MaxMsgsPerSubject = 1
	return config
}

// deadLetters keeps what the followers of a world give up, and raises the alert about it.
type deadLetters struct {
	world  string
	stream sideStream
	logger *slog.Logger
	raise  func(runevents.Alert) // nil for nobody
}

// openLetters makes where the followers leave what they give up, and where alerts go, on the
// followers' connection.
func (e *Engine) openLetters(nc *nats.Conn) (*deadLetters, error) {
	letters, err := newDeadLetters(nc, e.config.World, e.config.Replicas, e.config.Logger)
	if err != nil {
		return nil, err
	}
	e.alerts = newAlerts(letters.stream.js, e.config)
	letters.raise = e.alerts.raise
	return letters, nil
}

func newDeadLetters(nc *nats.Conn, world string, replicas int, logger *slog.Logger) (*deadLetters, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	return &deadLetters{
		world: world, stream: sideStream{js: js, config: deadLetterConfig(world, replicas)}, logger: logger,
	}, nil
}

// keep stores a letter once, whoever gives the same message up and how often, and raises the alert.
// The alert is raised again with each call, since the one before may have died between the two;
// the stream of alerts knows those of the last minutes. keep is what a follower's GiveUp is.
func (d *deadLetters) keep(ctx context.Context, letter follow.Letter) error {
	msg := d.message(&letter)
	err := d.stream.store(ctx, msg)
	if follow.IsRefusal(err) {
		err = d.stream.store(ctx, withoutBody(msg))
	}
	switch {
	case follow.IsRefusal(err):
		d.logger.Error("a dead letter is refused too; only the log has the message now",
			"subject", msg.Subject, "error", err)
	case err != nil && !follow.IsWrongLastSequence(err):
		return fmt.Errorf("worldengine: dead letter %s: %w", msg.Subject, err)
	}
	if d.raise != nil {
		d.raise(deliveryFailed(&letter, msg.Subject))
	}
	return nil
}

// message returns the dead letter. Its guard holds as long as there is none of this message.
func (d *deadLetters) message(letter *follow.Letter) *nats.Msg {
	seq, part := strconv.FormatUint(letter.LogSeq, 10), strconv.Itoa(letter.LogPart)
	header := nats.Header{}
	for name, values := range letter.Header {
		if !strings.HasPrefix(name, "Nats-") {
			header[name] = values
		}
	}
	header.Set(follow.LogSeqHeader, seq)
	header.Set(follow.LogPartHeader, part)
	header.Set(OriginalSubjectHeader, letter.Subject)
	header.Set(DeadLetterReasonHeader, reasonText(letter.Reason))
	header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	return &nats.Msg{
		Subject: DeadLetterSubject(d.world, letter.Stream, seq, part), Header: header, Data: letter.Data,
	}
}

// withoutBody returns a dead letter that only points to the log.
func withoutBody(msg *nats.Msg) *nats.Msg {
	pointer := &nats.Msg{Subject: msg.Subject, Header: nats.Header{}}
	for _, name := range [...]string{
		follow.LogSeqHeader, follow.LogPartHeader, OriginalSubjectHeader, DeadLetterReasonHeader,
		jetstream.ExpectedLastSubjSeqHeader,
	} {
		pointer.Header.Set(name, msg.Header.Get(name))
	}
	pointer.Header.Set(OriginalSizeHeader, strconv.Itoa(len(msg.Data)))
	return pointer
}

func reasonText(reason error) string {
	text := strings.ToValidUTF8(reason.Error(), "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// deliveryFailed returns the alert about a letter, with what the message says of the run, the event
// and the handoff that it is about.
func deliveryFailed(letter *follow.Letter, subject string) runevents.Alert {
	var body struct {
		runevents.Record `json:",inline"`
		HandoffID        string `json:"handoffId"`
	}
	what := "part " + strconv.Itoa(letter.LogPart) + " of what is derived from log sequence"
	if letter.Unreadable {
		body.RunID = letter.Header.Get(RunIDHeader)
		what = "log sequence"
	} else if json.Unmarshal(letter.Data, &body) != nil {
		body.Record = runevents.Record{} // then the subject of the letter has to do
	}
	alert := runevents.NewAlert(runevents.EventBusDeliveryFailed, &body.Record, fmt.Sprintf(
		"%s cannot be brought to %s: %s %d: %s", letter.Subject, letter.Stream, what, letter.LogSeq,
		reasonText(letter.Reason)))
	alert.HandoffID, alert.DeadLetter = body.HandoffID, subject
	return alert
}
