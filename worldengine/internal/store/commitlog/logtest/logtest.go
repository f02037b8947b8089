// Package logtest makes commit logs on a real NATS for tests.
package logtest

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// New makes a commit log on a real NATS.
func New(t testing.TB) *records.Log {
	t.Helper()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), worldsettings.StreamConfig("main",
		worldsettings.Settings{HistoryPerTown: 100}, 1))
	require.NoError(t, err)
	return &records.Log{Log: &commitlog.Log{
		World: "main", Store: &commitlog.StreamStore{JetStream: js, Stream: stream},
		Stream: stream, MaxPayload: nc.MaxPayload, Jitter: rand.N[time.Duration],
	}, Retention: time.Hour}
}

// JetStream returns the JetStream that a log is on.
func JetStream(l *records.Log) jetstream.JetStream {
	return l.Store.(*commitlog.StreamStore).JetStream
}

// LoseAnswers makes a log lose the answers to appends.
func LoseAnswers(l *records.Log) *LossyJetStream {
	lossy := &LossyJetStream{JetStream: JetStream(l)}
	l.Store.(*commitlog.StreamStore).JetStream = lossy
	return lossy
}

// Put is the log message that puts a town at a day.
func Put(t testing.TB, day int64) *nats.Msg {
	t.Helper()
	return PutTown(t, "t", day)
}

// PutTown is the log message that puts a town of an id at a day.
func PutTown(t testing.TB, townID string, day int64) *nats.Msg {
	t.Helper()
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion,
		TownID: townID, Day: day})
	rec := machine.Record{Kind: machine.KindPut, TownID: townID}
	msg, err := records.Encode(&rec, layout.LogSubject("main", wire.TownToken(townID)),
		&machine.Town{State: state})
	require.NoError(t, err)
	return msg
}

// LossyJetStream stores messages and loses some of the answers.
type LossyJetStream struct {
	jetstream.JetStream
	Lose int
}

func (l *LossyJetStream) PublishMsg(
	ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt,
) (*jetstream.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, msg, opts...)
	if l.Lose > 0 {
		l.Lose--
		return nil, nats.ErrTimeout
	}
	return ack, err
}

// Keep makes a log keep so many messages of each subject.
func Keep(t testing.TB, l *records.Log, messages int64) {
	t.Helper()
	config := l.Stream.CachedInfo().Config
	config.MaxMsgsPerSubject = messages
	_, err := JetStream(l).UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// Cut makes a log discard all but so many messages of each subject, as if they had expired.
func Cut(t testing.TB, l *records.Log, messages int64) {
	t.Helper()
	before := l.Stream.CachedInfo().Config.MaxMsgsPerSubject
	Keep(t, l, messages)
	Keep(t, l, before)
}

// ChangedStore shows one message of a log otherwise than it is.
type ChangedStore struct {
	commitlog.Store
	Seq uint64
	Msg *jetstream.RawStreamMsg // nil for none
}

func (s *ChangedStore) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	if seq == s.Seq {
		return s.Msg, nil
	}
	return s.Store.At(ctx, seq)
}

// AppendSubject returns the subject on which the log of a world accepts messages of a subject; other
// subjects are returned unchanged.
func AppendSubject(t testing.TB, js jetstream.JetStream, subject string) string {
	t.Helper()
	world, ok := strings.CutPrefix(subject, "world.")
	world, _, _ = strings.Cut(world, ".")
	if !ok {
		return subject
	}
	stream, err := js.Stream(t.Context(), layout.LogStream(world))
	require.NoError(t, err)
	if identity := commitlog.Identity(stream.CachedInfo().Config); identity != "" {
		return layout.AppendSubject(subject, identity)
	}
	return subject
}
