package signals_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

func TestDefaultsOfASignal(t *testing.T) {
	t.Parallel()
	require.Equal(t, signals.Signal{ActorID: "operator", DrainTimeout: 5 * time.Minute},
		signals.Signal{}.WithDefaults())
	given := signals.Signal{
		Kind: lifecycle.SignalCancel, TownID: "t", RunID: "r", Force: true, HandoffID: "h",
		ActorID: "ada", Reason: "why", DrainTimeout: time.Second,
	}
	require.Equal(t, given, given.WithDefaults(), "what is given stays")
}

// An accepted signal is a run whose events have all that was said, and nothing is stored yet.
func TestTheRunOfAnAcceptedSignal(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	run, err := newRecorder(l).Accepted(&signals.Signal{
		Kind: lifecycle.SignalApprove, TownID: "t", RunID: "r", HandoffID: "h", ActorID: "ada",
		Reason: "why",
	})
	require.NoError(t, err)
	require.Equal(t, []string{"signal", "signal.v1"}, []string{run.PlanID, run.PlanVersion})
	require.Equal(t, []runevents.EventType{runevents.RunStarted, runevents.SignalAccepted,
		runevents.RunCompleted}, eventsOf(run))
	require.JSONEq(t, `{"signal":"APPROVE","townId":"t","runId":"r","handoffId":"h",
		"actorId":"ada","reason":"why"}`, string(run.Events[1].Payload))
	end, err := l.End(t.Context())
	require.NoError(t, err)
	require.Zero(t, end)
}

// A refusal is recorded once, also where NATS does not answer at first, and names its run.
func TestARefusalIsRecorded(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	logtest.LoseAnswers(l).Lose = 1
	err := newRecorder(l).Refuse(t.Context(), &signals.Signal{
		Kind: lifecycle.SignalCancel, TownID: "t", RunID: "r", ActorID: "ada",
	}, wire.CodeRunNotWaiting, "the run has ended")
	var refused *signals.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.CodeRunNotWaiting, refused.Code)
	require.EqualError(t, err, "worldengine: the run has ended")

	rec := lastSignal(t, l)
	require.Equal(t, commitlog.KindSignal, rec.Kind)
	require.Equal(t, []string{"t", refused.SignalID}, []string{rec.TownID, rec.Run.RunID})
	require.Equal(t, []runevents.EventType{runevents.RunStarted, runevents.SignalRejected,
		runevents.RunFailed}, eventsOf(rec.Run))
	require.JSONEq(t, `{"signal":"CANCEL","townId":"t","runId":"r","actorId":"ada",
		"code":"RUN_NOT_WAITING"}`, string(rec.Run.Events[1].Payload))
	end, err := l.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1), end, "the log has it once")
}

// A refusal that is not recorded is none: the operator is told why it could not be.
func TestARefusalThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	s := &signals.Signal{Kind: lifecycle.SignalPause, TownID: "t", ActorID: "ada"}
	refused := new(signals.RefusedError)

	full := logtest.New(t)
	full.MayStore = func() error { return errors.New("the disk is full") }
	err := newRecorder(full).Refuse(t.Context(), s, wire.CodeAlreadyPaused, "paused")
	require.ErrorIs(t, err, commitlog.ErrStorageFull)
	require.NotErrorAs(t, err, &refused)

	trouble := errors.New("no id")
	unnamed := signals.Recorder{Log: full,
		NewProducer: func(string, string) (*runevents.Producer, error) { return nil, trouble }}
	err = unnamed.Refuse(t.Context(), s, wire.CodeAlreadyPaused, "paused")
	require.ErrorIs(t, err, trouble)
	require.NotErrorAs(t, err, &refused)
	_, err = unnamed.Accepted(s)
	require.ErrorIs(t, err, trouble)
}

// A run that is recorded stands in the log as it is, of the town that is named.
func TestASignalIsRecorded(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	r := newRecorder(l)
	run, err := r.Accepted(&signals.Signal{Kind: lifecycle.SignalCancel, RunID: "r",
		ActorID: "ada"})
	require.NoError(t, err)
	for range 2 { // the second is the first one, tried again
		require.NoError(t, r.Record(t.Context(), "t", run))
	}
	rec := lastSignal(t, l)
	require.Equal(t, "t", rec.TownID)
	require.Equal(t, run, rec.Run)
	end, err := l.End(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1), end)
}
