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

// newRecorder returns what makes and stores the runs of signals in a log.
func newRecorder(l *commitlog.Log) *signals.Recorder {
	return &signals.Recorder{
		Log: l, NewProducer: func(planID, planVersion string) (*runevents.Producer, error) {
			return logtest.NewProducer(runevents.Identity{
				RunID: uuid.NewString(), TenantID: "default", ProjectID: "main",
				EnvironmentID: "local", PlanID: planID, PlanVersion: planVersion,
			}), nil
		},
	}
}

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
	run, err := newRecorder(l).Accepted(&s)
	require.NoError(t, err)
	rec := commitlog.Record{Kind: commitlog.KindControl, Run: run}
	if signalID != "" {
		rec.Paused = &commitlog.PausedBy{SignalID: signalID, ActorID: s.ActorID, At: time.Now()}
	}
	msg, err := commitlog.Encode(&rec, wire.ControlSubject("main"), nil)
	require.NoError(t, err)
	seq, err := l.Commit(t.Context(), msg, guard)
	require.NoError(t, err)
	return seq
}

// lastSignal returns the last record of the signals' subject.
func lastSignal(t *testing.T, l *commitlog.Log) *commitlog.Record {
	t.Helper()
	msg, err := l.Store.Last(t.Context(), wire.SignalSubject("main"))
	require.NoError(t, err)
	require.NotNil(t, msg, "no signal is recorded")
	rec, err := commitlog.ReadRecord(msg.Data)
	require.NoError(t, err)
	return rec
}

// eventsOf returns the types of the events of a run.
func eventsOf(run *runevents.Run) (types []runevents.EventType) {
	for i := range run.Events {
		types = append(types, run.Events[i].EventType)
	}
	return types
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
