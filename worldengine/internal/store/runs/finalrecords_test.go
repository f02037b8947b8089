package runs

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
)

var (
	errStore  = errors.New("no answer of the store")
	errEvents = errors.New("no answer of the events")
)

// oneMessage is a log's store that keeps one message, at sequence 7, and fails at sequence 8.
type oneMessage struct {
	commitlog.Store
	body []byte
}

func (s oneMessage) At(_ context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	switch seq {
	case 7:
		return &jetstream.RawStreamMsg{Sequence: seq, Data: s.body}, nil
	case 8:
		return nil, errStore
	}
	return nil, nil
}

// ends returns the FinalRecords of a log that has the end of the run "run-1".
func ends(t *testing.T, end *machine.Record) *FinalRecords {
	t.Helper()
	msg, err := records.Encode(end, "any", nil)
	require.NoError(t, err)
	return &FinalRecords{
		Log: &records.Log{Log: &commitlog.Log{Store: oneMessage{body: msg.Data}}}, Runs: fakeRuns{},
	}
}

// fakeRuns are runs that have ended, and some that cannot be read.
type fakeRuns struct{ RunGetter }

func (fakeRuns) EndedAt(_ context.Context, runID string) (uint64, error) {
	return map[string]uint64{"run-1": 7, "run-2": 7, "run-8": 8, "run-9": 9}[runID], unread(runID)
}

func (fakeRuns) Get(_ context.Context, runID string) (run runevents.Snapshot, err error) {
	if runID == "run-1" {
		run.Status = runevents.RunStatusCompleted
		run.Metadata.Started = []byte(`{"townId":"t"}`)
	}
	return run, unread(runID)
}

func unread(runID string) error {
	return map[string]error{"none": errEvents, "unknown": ErrUnknownRun,
		"damaged": fmt.Errorf("%w: row 1", ErrRunDamaged)}[runID]
}

// A run without a readable record of its end answers its client with that instead of waiting for
// ever. A log that does not answer is asked again.
func TestFinalRecords_Lost(t *testing.T) {
	t.Parallel()
	e := ends(t, logtest.Unreached(t))
	for runID, want := range map[string]struct {
		record, ended     bool
		townID            string
		recordErr, runErr error
	}{
		"run-1":   {record: true, ended: true, townID: "t"},
		"run-9":   {},
		"run-8":   {recordErr: commitlog.ErrLogUnavailable},
		"unknown": {},
		"damaged": {runErr: ErrRunDamaged},
		"none":    {recordErr: errEvents, runErr: errEvents},
	} {
		rec, err := e.Find(t.Context(), runID)
		require.ErrorIs(t, err, want.recordErr, runID)
		require.Equal(t, want.record, rec != nil, runID)
		ended, err := e.HasEnded(t.Context(), runID)
		require.ErrorIs(t, err, want.runErr, runID)
		require.Equal(t, want.ended, ended, runID)
		townID, err := e.TownOf(t.Context(), runID)
		require.ErrorIs(t, err, want.runErr, runID)
		require.Equal(t, want.townID, townID, runID)
	}
}

// A read error, or another run's record, is no end: the end of the run is unknown.
func TestFinalRecords_Unreadable(t *testing.T) {
	t.Parallel()
	end, withoutRun := logtest.Unreached(t), logtest.Unreached(t)
	withoutRun.Run = nil
	for _, c := range []struct {
		runID   string
		end     *machine.Record
		message string
	}{
		{"none", end, errEvents.Error()}, {"run-8", end, errStore.Error()},
		{"run-2", end, "run-2 name log sequence 7 for its end, which has another run"},
		{"run-1", withoutRun, "handoffctl fsck"},
	} {
		_, _, err := ends(t, c.end).Get(t.Context(), c.runID)
		require.ErrorContains(t, err, c.message)
	}
}
