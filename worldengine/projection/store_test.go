package projection

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/natstest"
)

// newStore returns a store over a stream that has the records, each run's amid those of others.
func newStore(t *testing.T, records []runevents.Record) *store {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "EVENTS", Subjects: []string{"events.*.*"}, AllowDirect: true,
	})
	require.NoError(t, err)
	for i := range records {
		data, err := records[i].AppendJSON(nil)
		require.NoError(t, err)
		for subject, body := range map[string][]byte{"events.t." + records[i].RunID: data,
			"events.t.other": []byte("x")} {
			_, err = js.Publish(t.Context(), subject, body)
			require.NoError(t, err)
		}
	}
	s := &store{
		subject: func(town, runID string) string { return "events." + town + "." + runID },
		held:    func(string) (runevents.Snapshot, bool) { return runevents.Snapshot{}, false },
		logger:  slog.New(slog.DiscardHandler), maxMarks: 10,
	}
	s.open(stream)
	return s
}

// someRun is a run with a gap behind its fourth event.
func someRun() []runevents.Record {
	run := runevents.Run{
		FirstSeq: 1, Identity: runevents.Identity{RunID: "run", PlanID: "p", PlanVersion: "1"},
	}
	for i, event := range []runevents.EventType{
		runevents.RunStarted, runevents.StepStarted, runevents.StepCompleted, "Told",
		runevents.RunPaused, runevents.RunResumed,
	} {
		e := runevents.Event{EventID: fmt.Sprint(i), EventType: event, LogicalAttemptID: 1}
		if event.OfStep() {
			e.StepID = "build"
		}
		run.Events = append(run.Events, e)
	}
	records := run.Records(theDay)
	for i := range records[4:] {
		records[4+i].RunSeq += 10
	}
	return records
}

func TestARunIsReadFromTheStream(t *testing.T) {
	t.Parallel()
	records := someRun()
	s := newStore(t, records)
	for after := range int64(20) {
		var want []runevents.Record
		for i := range records {
			if records[i].RunSeq > after {
				want = append(want, records[i])
			}
		}
		got, err := s.Events(t.Context(), "run", after)
		require.NoError(t, err)
		require.Equal(t, want, got, "after %d", after)
	}
	got, err := s.Events(t.Context(), "unknown", 0)
	require.NoError(t, err)
	require.Empty(t, got)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Events(ctx, "run", 0)
	require.ErrorIs(t, err, context.Canceled)
}

// What was discarded of a run is an error for the caller.
func TestADiscardedRunIsReadFromTheStream(t *testing.T) {
	t.Parallel()
	records := someRun()
	s := newStore(t, records)
	discard := func(before uint64) {
		require.NoError(t, s.stream.Purge(t.Context(), jetstream.WithPurgeSequence(before)))
	}
	discard(5) // two messages of a record: 1 and 2 are gone
	for after := range int64(20) {
		got, err := s.Events(t.Context(), "run", after)
		if after < 2 {
			require.ErrorIs(t, err, runevents.ErrDiscarded, "after %d", after)
			continue
		}
		require.NoError(t, err, "after %d", after)
		require.Len(t, got, len(slices.DeleteFunc(slices.Clone(records),
			func(r runevents.Record) bool {
				return r.RunSeq <= after
			})), "after %d", after)
	}
	s.stream = &discarding{Stream: s.stream, before: 9}
	_, err := s.Events(t.Context(), "run", 2)
	require.ErrorIs(t, err, runevents.ErrDiscarded, "while it was read")
	discard(100)
	_, err = s.Events(t.Context(), "run", 16)
	require.ErrorIs(t, err, runevents.ErrDiscarded, "nothing is left")
}

// discarding discards all before a sequence once its first message was read.
type discarding struct {
	jetstream.Stream
	before uint64
}

func (d *discarding) GetMsg(
	ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	msg, err := d.Stream.GetMsg(ctx, seq, opts...)
	if err == nil && d.before > 0 {
		err = d.Purge(ctx, jetstream.WithPurgeSequence(d.before))
		d.before = 0
	}
	return msg, err
}

// counting counts the messages that are read.
type counting struct {
	jetstream.Stream
	read int
}

func (c *counting) GetMsg(
	ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	c.read++
	return c.Stream.GetMsg(ctx, seq, opts...)
}

// A run whose beginning was discarded is refused without reading what is left of it, which a batch
// with each of its events would do again.
func TestADiscardedRunIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	s := newStore(t, someRun())
	require.NoError(t, s.stream.Purge(t.Context(), jetstream.WithPurgeSequence(5)))
	counted := &counting{Stream: s.stream}
	s.stream = counted
	_, err := s.Events(t.Context(), "run", 0)
	require.ErrorIs(t, err, runevents.ErrDiscarded)
	require.Equal(t, 1, counted.read, "its first event")
}

// Both modes give the same, with any snapshot that is held, and without one.
func TestBothModesOfAResync(t *testing.T) {
	t.Parallel()
	records := someRun()
	s := newStore(t, records)
	want, _, err := runevents.Resync(t.Context(), s, runevents.ResyncRequest{
		Mode: runevents.Full, RunID: "run",
	})
	require.NoError(t, err)
	require.Equal(t, records[5].RunSeq, want.LastEventSeq)
	for held := range len(records) + 1 {
		snapshot, _, err := runevents.Project("run", records[:held])
		require.NoError(t, err)
		s.held = func(string) (runevents.Snapshot, bool) { return snapshot, held > 0 }
		for atMost := range int64(20) {
			_, ok, err := s.Snapshot(t.Context(), "run", atMost)
			require.NoError(t, err)
			require.Equal(t, held > 0 && snapshot.LastEventSeq <= atMost, ok)
			got, _, err := runevents.Resync(t.Context(), s, runevents.ResyncRequest{
				Mode: runevents.FromSnapshot, RunID: "run", SnapshotSeq: atMost,
			})
			require.NoError(t, err)
			require.Equal(t, want, got, "%d events held, at most %d", held, atMost)
		}
	}
}

// A run that goes on is not read from its beginning.
func TestARunThatGoesOnIsReadFromWhereItWas(t *testing.T) {
	t.Parallel()
	records := someRun()
	s := newStore(t, records)
	counted := &counting{Stream: s.stream}
	s.stream = counted
	got, err := s.Events(t.Context(), "run", 0)
	require.NoError(t, err)
	require.Equal(t, records, got)
	require.Equal(t, len(records)+2, counted.read, "each, and the first one before and after")
	counted.read = 0
	got, err = s.Events(t.Context(), "run", records[5].RunSeq)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, 2, counted.read)
	got, err = s.Events(t.Context(), "run", records[1].RunSeq)
	require.NoError(t, err)
	require.Equal(t, records[2:], got, "from anywhere else it is")
}

// A long run is read page by page, and no event twice.
func TestARunIsReadInPages(t *testing.T) {
	t.Parallel()
	records := someRun()
	s := newStore(t, records)
	var got []runevents.Record
	for after := int64(0); ; after = got[len(got)-1].RunSeq {
		page, err := s.page(t.Context(), "t", "run", after, 4)
		require.NoError(t, err)
		got = append(got, page...)
		if len(page) < 4 {
			break
		}
	}
	require.Equal(t, records, got)
}
