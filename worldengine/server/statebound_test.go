package server_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town"
)

// A plugin's answer may hold the state that town.put takes, and no larger one.
func TestState_OneBound(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin)
	c := connect(t, srv)
	large := func(size int) *town.Snapshot {
		s := snapshot("t")
		s.Day = 20
		base := len(town.NewState(s).Canonical)
		s.SideQuests[0].Title += strings.Repeat("x", size-base)
		require.Len(t, town.NewState(s).Canonical, size)
		return s
	}
	// atomic: a command may be asked for again while the test goes on
	var report atomic.Pointer[town.Snapshot]
	report.Store(large(town.MaxState + 1))
	answerBy(t, srv, func(command *apply.Command, respond func(apply.Answer)) {
		answer := apply.Done(command)
		answer.Snapshot = town.NewState(report.Load()).Canonical
		respond(answer)
	})
	at := c.put(snapshot("t"), "")
	o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, []any{handoff.Failed, apply.ReasonPluginStateInvalid},
		[]any{o.result.Status, o.result.ReasonCode})
	f := c.refused("town.put", mustJSON(t, putRequest(report.Load(), at.SnapshotHash)))
	require.Equal(t, []any{413, "PAYLOAD_TOO_LARGE"}, []any{f.Status, f.Code})

	report.Store(large(town.MaxState))
	o = c.send(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")))
	require.Equal(t, handoff.Executed, o.result.Status)
	now := c.town("t")
	require.Equal(t, town.NewState(large(town.MaxState)).Hash, now.SnapshotHash)
	require.Equal(t, now.SnapshotHash, c.put(large(town.MaxState), now.SnapshotHash).SnapshotHash)
}
