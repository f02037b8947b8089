package records_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// A judged handoff's headers have everything that a list of runs selects by.
func TestRecord_HeadersOfAHandoff(t *testing.T) {
	t.Parallel()
	for _, c := range machinetest.Cases(t) {
		rec, _ := logtest.Judged(t, &c)
		subject := layout.LogSubject("main", wire.TownToken(rec.TownID))
		msg, err := records.Encode(rec, subject, nil)
		require.NoError(t, err)
		want, types := string(c.Want.Status)+" "+string(c.Want.ReasonCode), "RunStarted,RunCompleted"
		if c.Want.Status == "failed" {
			types = "RunStarted,RunFailed"
		}
		require.Equal(t, want, msg.Header.Get(layout.ResultHeader), c.Name)
		require.Equal(t, c.Handoff.IdempotencyKey, msg.Header.Get(layout.KeyHeader))
		require.Equal(t, types, msg.Header.Get(layout.RunEventTypesHeader))
		require.Equal(t, string(c.Handoff.Proposal.Type), msg.Header.Get(layout.TypeHeader))
		require.Equal(t, c.Handoff.Proposal.ActorID, msg.Header.Get(layout.ActorHeader))
		require.Regexp(t, `^1-[0-9]+$`, msg.Header.Get(layout.RunSeqsHeader))
		require.Empty(t, msg.Header.Get(layout.TownTokenHeader), "the subject ends with it")

		msg, err = records.Encode(rec, layout.RefusedSubject("main", layout.UnknownTownToken), nil)
		require.NoError(t, err)
		require.Equal(t, wire.TownToken(rec.TownID), msg.Header.Get(layout.TownTokenHeader))
	}
}

// A producer's run has no type: its events may claim any.
func TestRecord_HeadersOfAProducersRun(t *testing.T) {
	t.Parallel()
	c := machinetest.Cases(t)[0]
	rec, _ := logtest.Judged(t, &c)
	rec.Run.AppendedBy = "jon"
	msg, err := records.Encode(&machine.Record{
		Kind: machine.KindAppended, TownID: "t", Run: rec.Run,
	}, layout.RunSubject("main", rec.Run.RunID), nil)
	require.NoError(t, err)
	require.Empty(t, msg.Header.Get(layout.TypeHeader))
	require.Equal(t, c.Handoff.Proposal.ActorID, msg.Header.Get(layout.ActorHeader))
	require.Equal(t, "t", msg.Header.Get(layout.TownTokenHeader))
}

// A producer may write the time of its first event with any number of digits.
func TestRecord_HeadersOfALongTime(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	first := logtest.NewWrite(1)
	first.EmittedAt = "2026-02-16T10:00:00." + strings.Repeat("1", 70_000) + "Z"
	plan, err := runlog.NewState(first.RunID, runlog.AppendPolicy{}).Plan(
		[]runevents.Write{first})
	require.NoError(t, err)
	_, err = l.CommitRun(t.Context(), &machine.Record{
		Kind: machine.KindAppended, TownID: "t", Run: &plan.Run,
	}, 0)
	require.NoError(t, err)
}
