// Package deadletters lists, reads and replays the dead letters of a world: the events that could not be
// published on its bus.
package deadletters

import (
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
	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

// Letter is a dead letter; its number is its sequence in the stream.
type Letter struct {
	Number  uint64    `json:"number"`
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"`
	LogSeq  uint64    `json:"logSeq"`
	Part    uint64    `json:"part"`
	Subject string    `json:"subject"` // of the event
	Reason  string    `json:"reason"`
	// Size is the size of a body that was too large to be kept; Body is the kept body, as a text if it
	// is not JSON. Open leaves out the bodies.
	Size uint64         `json:"size,omitzero"`
	Body jsontext.Value `json:"body,omitzero"`

	letterSubject string // the subject of the dead letter itself
}

func newLetter(msg *jetstream.RawStreamMsg) Letter {
	count := func(name string) uint64 {
		n, _ := strconv.ParseUint(msg.Header.Get(name), 10, 64) // 0 if the header is missing
		return n
	}
	l := Letter{
		Number: msg.Sequence, At: msg.Time, LogSeq: count(layout.LogSeqHeader),
		Part: count(layout.LogPartHeader), Subject: msg.Header.Get(layout.OriginalSubjectHeader),
		Reason: msg.Header.Get(layout.DeadLetterReasonHeader), Size: count(layout.OriginalSizeHeader),
		letterSubject: msg.Subject,
	}
	if tokens := strings.Split(msg.Subject, "."); len(tokens) > 3 {
		l.Stream = tokens[3]
	}
	return l
}

// Box has the dead letters of a world.
type Box struct {
	// Letters are without their bodies, the oldest first.
	Letters []Letter

	js     jetstream.JetStream
	world  string
	stream jetstream.Stream // nil if the world has had no dead letter
}

// ErrNoBus is the error of Open for a world without a bus, which has no dead letters either.
var ErrNoBus = errors.New("the world has no bus")

// Open lists the dead letters of a world.
func Open(ctx context.Context, js jetstream.JetStream, world string) (*Box, error) {
	b := &Box{Letters: []Letter{}, js: js, world: world}
	_, err := commitlog.OpenLog(ctx, js, world)
	if err == nil {
		_, err = js.Stream(ctx, wire.EventStream(world))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNoBus
	}
	if err == nil {
		b.stream, err = js.Stream(ctx, layout.DeadLetterStream(world))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return b, nil
	}
	if err == nil {
		_, err = commitlog.ScanHeaders(ctx, b.stream, 0, func(msg *jetstream.RawStreamMsg) error {
			b.Letters = append(b.Letters, newLetter(msg))
			return nil
		})
	}
	return b, err
}

// Read returns one of the Letters with its body, and the body byte for byte.
func (b *Box) Read(ctx context.Context, number uint64) (l Letter, body []byte, err error) {
	msg, err := b.stream.GetMsg(ctx, number)
	if err != nil {
		return l, nil, err
	}
	l = newLetter(msg)
	if l.Body = msg.Data; !l.Body.IsValid() {
		l.Body, _ = jsontext.AppendQuote(nil, string(msg.Data)) // replaces invalid UTF-8
	}
	return l, msg.Data, nil
}

// Unknown returns the numbers that no letter has.
func (b *Box) Unknown(numbers []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(numbers), func(n uint64) bool {
		return slices.ContainsFunc(b.Letters, func(l Letter) bool { return l.Number == n })
	})
}

// Replayed is a dead letter, and whether it was replayed.
type Replayed struct {
	Number   uint64 `json:"number"`
	Subject  string `json:"subject"`
	Replayed bool   `json:"replayed"`
	// AlertsAcknowledged is how many alerts about it were acknowledged.
	AlertsAcknowledged int `json:"alertsAcknowledged"`
}

// Replay publishes the letters with the numbers on the bus, or all letters if there are no numbers. It returns the
// chosen letters in their order. A letter that the bus refuses again, or whose log record is damaged or
// gone, is not Replayed.
func (b *Box) Replay(ctx context.Context, numbers []uint64, logger *slog.Logger) ([]Replayed, error) {
	letters, subjects := []Replayed{}, []string{}
	for _, l := range b.Letters {
		if len(numbers) == 0 || slices.Contains(numbers, l.Number) {
			letters = append(letters, Replayed{Number: l.Number, Subject: l.letterSubject})
			subjects = append(subjects, l.letterSubject)
		}
	}
	if len(letters) == 0 {
		return letters, nil
	}
	replayed, err := outbox.Replay(ctx, outbox.Config{Conn: b.js.Conn(), World: b.world, Logger: logger}, subjects)
	for i := range letters {
		letters[i].Replayed = slices.Contains(replayed, letters[i].Subject)
	}
	return letters, err
}

// Acknowledge acknowledges the alerts about the letters that were replayed, and counts them.
func Acknowledge(
	ctx context.Context, server *client.Client, actor, reason string, letters []Replayed,
) error {
	if len(letters) == 0 {
		return nil
	}
	for alert, err := range server.Alerts(ctx, true) {
		if err != nil {
			return err
		}
		i := slices.IndexFunc(letters, func(l Replayed) bool {
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
