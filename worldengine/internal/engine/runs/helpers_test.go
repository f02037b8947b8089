package runs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// open returns the runs of the world of a log, as an engine has them.
func open(t testing.TB, l *commitlog.Log) *Store {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	s := New(l, indextest.Open(t, l), Config{
		Logger: logger, Alert: func(string, runevents.Alert) bool { return true }, Now: time.Now,
		Appends: runevents.AppendPolicy{TenantID: "default", EngineSteps: machine.Steps(),
			EnginePlan: machine.IsEnginePlan},
	})
	turns := queue.New(context.Background(), queue.Config{Workers: 4, PerTown: 64,
		Total: 64, Logger: logger})
	s.Queue = turns
	t.Cleanup(func() { require.NoError(t, turns.Drain(context.Background())) })
	return s
}

// openJudged returns the runs of a log with three runs of the town "town-threatened", which ended
// executed, failed and rejected, with their ids and the sequences of their records.
func openJudged(t *testing.T) (s *Store, ids []string, seqs []uint64) {
	t.Helper()
	l := logtest.New(t)
	s = open(t, l)
	_, err := l.Commit(t.Context(), logtest.PutTown(t, "town-threatened", 13), 0)
	require.NoError(t, err)
	for _, c := range machinetest.Cases(t)[:3] {
		rec, after := logtest.Judged(t, &c)
		seqs = append(seqs, logtest.Commit(t, l, rec, logtest.In(after)))
		ids = append(ids, rec.Run.RunID)
	}
	return s, ids, seqs
}

// keep has a log keep so many messages of each subject.
func keep(t *testing.T, l *commitlog.Log, messages int64) {
	t.Helper()
	config := l.Stream.CachedInfo().Config
	config.MaxMsgsPerSubject = messages
	_, err := logtest.JetStream(l).UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// cut has a log discard all but so many messages of each subject, as if they had expired.
func cut(t *testing.T, l *commitlog.Log, messages int64) {
	t.Helper()
	before := l.Stream.CachedInfo().Config.MaxMsgsPerSubject
	keep(t, l, messages)
	keep(t, l, before)
}

// toldIn is logtest.Told of another run.
func toldIn(runID string, n int64) runevents.Write {
	w := logtest.Told(n)
	w.RunID = runID
	return keyed(w)
}

// keyed returns a write with the idempotency key that it has to have.
func keyed(w runevents.Write) runevents.Write {
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: w.LogicalAttemptID,
		EventType: w.EventType, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}

// ofRun is a write of an event of a run itself.
func ofRun(runID string, event runevents.EventType, payload string) runevents.Write {
	w := toldIn(runID, 1)
	w.EventType, w.StepID = event, ""
	if payload != "" {
		w.Payload = []byte(payload)
	}
	return keyed(w)
}

// tell appends to a run of a town.
func tell(t *testing.T, s *Store, townID string, writes ...runevents.Write) {
	t.Helper()
	_, err := s.Append(t.Context(), townID, writes)
	require.NoError(t, err)
}

// listed returns the ids of the runs of a list, read in pages of so many.
func listed(t *testing.T, s *Store, filter index.Filter, limit int) (ids []string) {
	t.Helper()
	for after, more := uint64(0), true; more; more = after > 0 {
		page, err := s.List(t.Context(), filter, after, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Runs), limit)
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].RunID)
		}
		after = page.Next
	}
	return ids
}

// changedStore shows one message of a log otherwise than it is.
type changedStore struct {
	commitlog.Store
	seq uint64
	msg *jetstream.RawStreamMsg // nil for none
}

func (s *changedStore) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	if seq == s.seq {
		return s.msg, nil
	}
	return s.Store.At(ctx, seq)
}
