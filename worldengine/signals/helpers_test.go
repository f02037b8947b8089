package signals_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// pauseWorld commits a pause of the world, or with "" its end, as an engine does, and returns the
// sequence that it has.
func pauseWorld(t *testing.T, l *commitlog.Log, signalID string) uint64 {
	t.Helper()
	guard, _, err := l.WorldPause(t.Context())
	require.NoError(t, err)
	s := signals.Signal{Kind: lifecycle.SignalPause, ActorID: "ada"}
	if signalID == "" {
		s.Kind = lifecycle.SignalResume
	}
	p := logtest.NewProducer(runevents.Identity{
		RunID: uuid.NewString(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: lifecycle.SignalPlan, PlanVersion: lifecycle.SignalVersion,
	})
	require.NoError(t, lifecycle.EmitSignal(p, s.Payload(), ""))
	rec := commitlog.Record{Kind: commitlog.KindControl, Run: p.Run()}
	if signalID != "" {
		rec.Paused = &commitlog.PausedBy{SignalID: signalID, ActorID: s.ActorID, At: time.Now()}
	}
	msg, err := commitlog.Encode(&rec, wire.ControlSubject("main"), nil)
	require.NoError(t, err)
	seq, err := l.Commit(t.Context(), msg, guard)
	require.NoError(t, err)
	return seq
}

// troubledStore is a store whose reads go through what a test says first.
type troubledStore struct {
	commitlog.Store
	last func(subject string) error
	end  func() error
}

func (s *troubledStore) Last(
	ctx context.Context, subject string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := s.Store.Last(ctx, subject)
	if s.last != nil {
		if trouble := s.last(subject); trouble != nil {
			return nil, trouble
		}
	}
	return msg, err
}

func (s *troubledStore) End(ctx context.Context) (uint64, error) {
	if s.end != nil {
		if trouble := s.end(); trouble != nil {
			return 0, trouble
		}
	}
	return s.Store.End(ctx)
}
