package outbox

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/sidestream"
)

// deadLetterRetention and maxDeadLetterBytes bound the stream of dead letters, and maxReason a reason in a header.
const (
	deadLetterRetention = 30 * 24 * time.Hour
	maxDeadLetterBytes  = 64 << 20
	maxReason           = 512
)

// DeadLetterConfig returns the stream of a world's dead letters. A message has one letter, however
// often it is given up.
func DeadLetterConfig(world string, replicas int) jetstream.StreamConfig {
	config := sidestream.Config(layout.DeadLetterStream(world), deadLetterRetention, maxDeadLetterBytes, replicas)
	config.Description = "Messages of the commit log of " + world + " that its bus does not have"
	config.Subjects = []string{layout.DeadLetterSubject(world, "*", "*", "*")}
	config.MaxMsgsPerSubject = 1
	return config
}

// deadLetter is a message that a relay gives up: an event that the stream refuses, or an unreadable
// message of the log.
type deadLetter struct {
	at         logPosition // its part is 0 for a message of the log
	msg        *nats.Msg
	unreadable bool
	reason     error
}

// storeDeadLetter stores a dead letter, and raises its alert. The stream has the letter once, however many
// relays give the message up. The alert is raised each time, since an earlier relay may have died
// before that; the stream of alerts keeps the alert once.
func (r *Relay) storeDeadLetter(ctx context.Context, l *deadLetter) error {
	msg, log := r.deadLetterMessage(l, true), sidestream.Log{World: r.config.World, Identity: r.identity}
	err := sidestream.Store(ctx, r.js, log, r.deadLetters, msg)
	if commitlog.IsRefusal(err) {
		err = sidestream.Store(ctx, r.js, log, r.deadLetters, r.deadLetterMessage(l, false))
	}
	switch {
	case commitlog.IsRefusal(err):
		r.config.Logger.Error("a dead letter is refused too; only the log has the message now",
			"subject", msg.Subject, "error", err)
	case err != nil && !commitlog.IsWrongLastSequence(err):
		return fmt.Errorf("outbox: the dead letter %s cannot be stored: %w", msg.Subject, err)
	}
	r.config.Raise(r.deliveryFailed(l, msg.Subject))
	return nil
}

// deadLetterMessage returns the message of a dead letter, with its body or without. Its guard makes the
// stream refuse a second letter about the message.
func (r *Relay) deadLetterMessage(l *deadLetter, whole bool) *nats.Msg {
	seq, part := strconv.FormatUint(l.at.logSeq, 10), strconv.Itoa(l.at.part)
	msg := &nats.Msg{
		Subject: layout.DeadLetterSubject(r.config.World, r.stream.Name, seq, part),
		Header:  nats.Header{},
	}
	if whole {
		msg.Data = l.msg.Data
		maps.Copy(msg.Header, l.msg.Header)
		maps.DeleteFunc(msg.Header, func(name string, _ []string) bool {
			return strings.HasPrefix(name, layout.ServerHeaderPrefix)
		})
	} else {
		msg.Header.Set(layout.OriginalSizeHeader, strconv.Itoa(len(l.msg.Data)))
	}
	msg.Header.Set(layout.LogSeqHeader, seq)
	msg.Header.Set(layout.LogPartHeader, part)
	msg.Header.Set(layout.OriginalSubjectHeader, l.msg.Subject)
	msg.Header.Set(layout.DeadLetterReasonHeader, reasonText(l.reason))
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	return msg
}

func reasonText(reason error) string {
	return phrase.Truncate(strings.ToValidUTF8(reason.Error(), "\uFFFD"), maxReason)
}

// deliveryFailed returns the alert about a dead letter. It names the run and the event.
func (r *Relay) deliveryFailed(l *deadLetter, subject string) runevents.Alert {
	var event runevents.Record
	source := "event " + strconv.Itoa(l.at.part) + " of log sequence"
	if l.unreadable {
		event.RunID = layout.RunIDOf(l.msg.Header)
		source = "log sequence"
	} else {
		_ = json.Unmarshal(l.msg.Data, &event) // the relay has written it
	}
	alert := alerts.Undelivered.EventAlert(&event, "{subject}", l.msg.Subject, "{stream}", r.stream.Name,
		"{source}", source, "{sequence}", fmt.Sprint(l.at.logSeq), "{reason}", reasonText(l.reason))
	alert.DeadLetter = subject
	return alert
}
