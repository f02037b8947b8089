package commitlog_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/wire"
)

// A judged handoff's headers have everything that a list of runs selects by.
func TestRecord_HeadersOfAHandoff(t *testing.T) {
	t.Parallel()
	for _, c := range machinetest.Cases(t) {
		rec, _ := logtest.Judged(t, &c)
		subject := wire.LogSubject("main", wire.TownToken(rec.TownID))
		msg, err := commitlog.Encode(rec, subject, nil)
		require.NoError(t, err)
		want, moves := string(c.Want.Status)+" "+string(c.Want.ReasonCode), "RunStarted,RunCompleted"
		if c.Want.Status == "failed" {
			moves = "RunStarted,RunFailed"
		}
		require.Equal(t, want, msg.Header.Get(wire.ResultHeader), c.Name)
		require.Equal(t, c.Handoff.IdempotencyKey, msg.Header.Get(wire.KeyHeader))
		require.Equal(t, moves, msg.Header.Get(wire.RunMovesHeader))
		require.Equal(t, string(c.Handoff.Proposal.Type), msg.Header.Get(wire.TypeHeader))
		require.Equal(t, c.Handoff.Proposal.ActorID, msg.Header.Get(wire.ActorHeader))
		require.Regexp(t, `^1-[0-9]+$`, msg.Header.Get(wire.RunSeqsHeader))
		require.Empty(t, msg.Header.Get(wire.TownTokenHeader), "the subject ends with it")

		msg, err = commitlog.Encode(rec, wire.RefusedSubject("main", wire.UnknownTownToken), nil)
		require.NoError(t, err)
		require.Equal(t, wire.TownToken(rec.TownID), msg.Header.Get(wire.TownTokenHeader))
	}
}

// A producer's run has no type: its events may claim any.
func TestRecord_HeadersOfAProducersRun(t *testing.T) {
	t.Parallel()
	c := machinetest.Cases(t)[0]
	rec, _ := logtest.Judged(t, &c)
	rec.Run.AppendedBy = "jon"
	msg, err := commitlog.Encode(&commitlog.Record{
		Kind: commitlog.KindEvents, TownID: "t", Run: rec.Run,
	}, wire.RunSubject("main", rec.Run.RunID), nil)
	require.NoError(t, err)
	require.Empty(t, msg.Header.Get(wire.TypeHeader))
	require.Equal(t, c.Handoff.Proposal.ActorID, msg.Header.Get(wire.ActorHeader))
	require.Equal(t, "t", msg.Header.Get(wire.TownTokenHeader))
}

// A producer may write the time of its first event with any number of digits.
func TestRecord_HeadersOfALongTime(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	first := logtest.Told(1)
	first.EmittedAt = "2026-02-16T10:00:00." + strings.Repeat("1", 70_000) + "Z"
	plan, err := runevents.NewRunState(first.RunID, runevents.AppendPolicy{}).Plan(
		[]runevents.Write{first})
	require.NoError(t, err)
	_, err = l.CommitRun(t.Context(), &commitlog.Record{
		Kind: commitlog.KindEvents, TownID: "t", Run: &plan.Run,
	}, 0)
	require.NoError(t, err)
}

// A message's persistedAt is never before its town's last one, and stays when it is appended again.
func TestLog_StampsPersistedAt(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	last := now.Add(time.Minute)
	l.Now = func() time.Time { return now }
	first := logtest.Put(t, 1)
	seq, err := l.Commit(t.Context(), first, 0)
	require.NoError(t, err)
	require.Equal(t, "2026-01-02T03:04:05.006Z", first.Header.Get(wire.AtHeader))
	l.LastAt = func(_ context.Context, subject string, header nats.Header) time.Time {
		require.Equal(t, first.Subject, subject)
		return last
	}
	second := logtest.Put(t, 2)
	_, err = l.Commit(t.Context(), second, seq+1)
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	now = last.Add(time.Minute)
	seq, err = l.Commit(t.Context(), second, seq)
	require.NoError(t, err)
	require.Equal(t, runevents.Timestamp(last), second.Header.Get(wire.AtHeader))
	stored, err := l.At(t.Context(), seq)
	require.NoError(t, err)
	require.Equal(t, last, commitlog.At(stored))
	require.Equal(t, stored.Time, commitlog.AtOr(nats.Header{}, stored.Time), "without the header")
}
