package commitlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
)

// Identify gives the stream of a log an identity. The stream then accepts appends only on subjects with
// that identity, and stores each message on its own subject. So an append that a suspended writer sends
// after its world was removed and made anew reaches no stream, even if its guard holds in the new log.
// The identity MUST stay the same as long as the stream exists: replicas apply it when they store.
func Identify(config *jetstream.StreamConfig, world, identity string) {
	if identity == "" { // the log of an earlier program
		return
	}
	config.Subjects = slices.Clone(config.Subjects)
	for i, subject := range config.Subjects {
		config.Subjects[i] = layout.AppendSubject(subject, identity)
	}
	config.SubjectTransform = &jetstream.SubjectTransformConfig{
		Source: layout.AppendSubject(layout.LogSubjects(world), identity), Destination: layout.LogSubjects(world),
	}
}

// Identity returns the identity of the log that has a stream; "" if an earlier program made the log.
func Identity(config jetstream.StreamConfig) string {
	if config.SubjectTransform == nil {
		return ""
	}
	return layout.LogIdentity(config.SubjectTransform.Source)
}

// ErrOtherLog means that the world was removed and made anew, so its log is another one than before.
var ErrOtherLog = errors.New("commitlog: the world was removed, and another one has its name")

// RequireIdentity returns ErrOtherLog if the log of a world has another identity, and ErrNoWorld if there
// is no log.
func RequireIdentity(ctx context.Context, js jetstream.JetStream, world, identity string) error {
	log, err := OpenLog(ctx, js, world)
	if err == nil && Identity(log.CachedInfo().Config) != identity {
		return fmt.Errorf("%w: %s", ErrOtherLog, world)
	}
	return err
}

// withIdentity returns a message on the subject on which the stream with an identity accepts it.
func withIdentity(msg *nats.Msg, identity string) *nats.Msg {
	if identity == "" {
		return msg
	}
	return &nats.Msg{Subject: layout.AppendSubject(msg.Subject, identity), Header: msg.Header, Data: msg.Data}
}
