package alerts

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
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// maxDeadLetterBytes bounds the stream of dead letters.
const maxDeadLetterBytes = 64 << 20

// maxReason bounds a reason in a header.
const maxReason = 512

// DeadLetterConfig is the stream of a world's dead letters. A message has one, however often it is
// given up.
func DeadLetterConfig(world string, replicas int) jetstream.StreamConfig {
	config := sideConfig(maxDeadLetterBytes, replicas)
	config.Name = wire.DeadLetterStream(world)
	config.Description = "What could not be brought from the commit log of " + world +
		" onto its bus"
	config.Subjects = []string{wire.DeadLetterSubject(world, "*", "*", "*")}
	config.MaxMsgsPerSubject = 1
	return config
}

// DeadLetter is a message that a bus gives up: an event that its stream does not take, or a message
// of the log that cannot be read.
type DeadLetter struct {
	// Stream is the name of the derived stream.
	Stream string
	// LogSeq and LogPart are the message's place: that of the log message, and among those derived
	// from it. LogPart is 0 for a message of the log.
	LogSeq  uint64
	LogPart int
	// Subject, Header and Data are the derived message's, or, where Unreadable is set, those of
	// the message of the log.
	Subject    string
	Header     nats.Header
	Data       []byte
	Unreadable bool
	// Reason is why it was given up.
	Reason error
}

// DeadLetters keeps what the followers of a world give up, and raises the alert about it.
type DeadLetters struct {
	world  string
	Stream SideStream
	logger *slog.Logger
	Raise  func(runevents.Alert) // nil where no alert is raised
}

// NewDeadLetters makes dead letters; raise, unless it is nil, gets the alert about each.
func NewDeadLetters(
	js jetstream.JetStream, world string, replicas int, logger *slog.Logger,
	raise func(runevents.Alert),
) *DeadLetters {
	return &DeadLetters{
		world: world, Stream: SideStream{JetStream: js, Config: DeadLetterConfig(world, replicas)},
		logger: logger, Raise: raise,
	}
}

// Keep stores a dead letter once, however many followers give the message up, and raises the alert.
// The alert is raised again with each call, since the one before may have died between the two; the
// stream of alerts knows those of the last minutes. Keep is the GiveUp of a follower
// (follow.Config).
func (d *DeadLetters) Keep(ctx context.Context, letter DeadLetter) error {
	msg := d.message(&letter)
	err := d.Stream.Store(ctx, msg)
	if commitlog.IsRefusal(err) {
		err = d.Stream.Store(ctx, withoutBody(msg))
	}
	switch {
	case commitlog.IsRefusal(err):
		d.logger.Error("a dead letter is refused too; only the log has the message now",
			"subject", msg.Subject, "error", err)
	case err != nil && !commitlog.IsWrongLastSequence(err):
		return fmt.Errorf("worldengine: dead letter %s: %w", msg.Subject, err)
	}
	if d.Raise != nil {
		d.Raise(DeliveryFailed(&letter, msg.Subject))
	}
	return nil
}

// message returns the dead letter. Its guard holds as long as there is none of this message.
func (d *DeadLetters) message(letter *DeadLetter) *nats.Msg {
	seq, part := strconv.FormatUint(letter.LogSeq, 10), strconv.Itoa(letter.LogPart)
	header := nats.Header{}
	for name, values := range letter.Header {
		if !strings.HasPrefix(name, wire.ServerHeaderPrefix) {
			header[name] = values
		}
	}
	header.Set(wire.LogSeqHeader, seq)
	header.Set(wire.LogPartHeader, part)
	header.Set(wire.OriginalSubjectHeader, letter.Subject)
	header.Set(wire.DeadLetterReasonHeader, reasonText(letter.Reason))
	header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	return &nats.Msg{
		Subject: wire.DeadLetterSubject(d.world, letter.Stream, seq, part),
		Header:  header, Data: letter.Data,
	}
}

// withoutBody returns a dead letter that only points to the log.
func withoutBody(msg *nats.Msg) *nats.Msg {
	pointer := &nats.Msg{Subject: msg.Subject, Header: nats.Header{}}
	for _, name := range [...]string{
		wire.LogSeqHeader, wire.LogPartHeader, wire.OriginalSubjectHeader,
		wire.DeadLetterReasonHeader, jetstream.ExpectedLastSubjSeqHeader,
	} {
		pointer.Header.Set(name, msg.Header.Get(name))
	}
	pointer.Header.Set(wire.OriginalSizeHeader, strconv.Itoa(len(msg.Data)))
	return pointer
}

func reasonText(reason error) string {
	return shortened(strings.ToValidUTF8(reason.Error(), "\uFFFD"), maxReason)
}

// shortened returns a text of at most so many bytes.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// DeliveryFailed returns the alert about a letter, with what the message says of the run, the event
// and the handoff that it is about.
func DeliveryFailed(letter *DeadLetter, subject string) runevents.Alert {
	var body struct {
		runevents.Record `json:",inline"`
		HandoffID        string `json:"handoffId"`
	}
	what := "part " + strconv.Itoa(letter.LogPart) + " of what is derived from log sequence"
	if letter.Unreadable {
		body.RunID = letter.Header.Get(wire.RunIDHeader)
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
