package mcp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// An open proposal that the town has refused as stale is made anew: it was never carried out.
func TestPropose_OpenIsStale(t *testing.T) {
	t.Parallel()
	m := session(t, start(t))
	town, err := m.Client.Town(t.Context(), threatened)
	require.NoError(t, err)
	old, err := handoff.New(handoff.Proposal{Type: handoff.AdvanceProject, ActorID: m.Actor, TownID: threatened,
		Reason: "r", Args: map[string]string{"projectId": "wall-perimeter"}, SnapshotHash: strings.Repeat("0", 64),
		DecisionEpoch: town.DecisionEpoch})
	require.NoError(t, err)
	m.AddOpen(old)
	require.Contains(t, host(t, m).Ok("propose", map[string]any{"townId": threatened, "type": "PROJECT_ADVANCE",
		"argument": "wall-perimeter", "reason": "r"}), `"EXECUTED"`)
}

// An error says whether anything was proposed. What may be carried out is the same proposal later.
func TestPropose_Doubt(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Agent, func(u *access.User) { u.Actors = []string{"mayor-1"} })))
	operator, agent := sessionAs(t, srv, "operator"), sessionAs(t, srv, "agent")
	proposal := map[string]any{"townId": threatened, "type": "TOWNSFOLK_TALK", "argument": "casual", "reason": "r"}
	h := host(t, agent)
	require.Regexp(t, `ACTOR_NOT_ALLOWED.*nothing was proposed by this call`, h.Fails("propose", proposal))
	proposal["townId"] = "atlantis"
	require.Regexp(t, `UNKNOWN_TOWN.*nothing was proposed by this call`, h.Fails("propose", proposal))
	require.Regexp(t, `no proposal of this session.*nothing was proposed by this call`,
		h.Fails("resubmit", map[string]any{"idempotencyKey": "x"}))

	proposal["townId"] = threatened
	_, err := operator.Client.Request(t.Context(), wire.ControlPause, []byte(`{"townId": "`+threatened+`"}`))
	require.NoError(t, err)
	agent = sessionAs(t, srv, "agent")
	agent.Actor = "mayor-1"
	h = host(t, agent)
	var text string
	natstest.Patiently(t, 300*time.Millisecond, func(within time.Duration) string {
		agent.Client.Timeout = within
		if text = h.Fails("propose", proposal); strings.Contains(text, "nothing was proposed by this call") {
			return text
		}
		return ""
	})
	require.Regexp(t, `it was proposed, and may be carried out.*idempotencyKey: proposal_`, text)
	_, err = operator.Client.Request(t.Context(), wire.ControlResume, []byte(`{"townId": "`+threatened+`"}`))
	require.NoError(t, err)
	agent.Client.Timeout = time.Minute
	_, key, _ := strings.Cut(text, "idempotencyKey: ")
	require.Contains(t, h.Ok("resubmit", map[string]any{"idempotencyKey": key}), `"EXECUTED"`)
	town, err := operator.Client.Town(t.Context(), threatened)
	require.NoError(t, err)
	require.EqualValues(t, 16, town.DecisionEpoch, "once")
}

// A server that is too busy is said to be so, and the proposal goes through later, once.
func TestPropose_Overload(t *testing.T) {
	t.Parallel()
	srv := start(t, func(c *server.Config) { c.Engine.Bounds.PerTown, c.Engine.PauseTimeout = 1, time.Hour })
	m := session(t, srv)
	about := []byte(`{"townId": "` + threatened + `"}`)
	_, err := m.Client.Request(t.Context(), wire.ControlPause, about)
	require.NoError(t, err)
	town, err := m.Client.Town(t.Context(), threatened)
	require.NoError(t, err)
	for i := range 20 { // more than may wait
		h, err := handoff.New(handoff.Proposal{Type: handoff.TalkToTownsfolk, ActorID: "flood", TownID: threatened, Reason: "r",
			Args: map[string]string{"talkType": "casual"}, SnapshotHash: strings.Repeat("0", 64), DecisionEpoch: town.DecisionEpoch,
			Priority: float64(i) / 20})
		require.NoError(t, err)
		body, err := h.MarshalWire()
		require.NoError(t, err)
		require.NoError(t, m.Client.Conn.PublishRequest(wire.Subject("main", wire.Handoff), m.Client.Conn.NewInbox(), body))
	}
	m.Client.Timeout = time.Second
	h := host(t, m)
	proposal := map[string]any{"townId": threatened, "type": "PROJECT_ADVANCE", "argument": "wall-perimeter", "reason": "r"}
	// The last attempt may be without an answer on a busy machine.
	require.Regexp(t, `(OVERLOADED \(429\)|TIMEOUT): .*it was proposed, and may be carried out`, h.Fails("propose", proposal))
	_, err = m.Client.Request(t.Context(), wire.ControlResume, about)
	require.NoError(t, err)
	m.Client.Timeout = time.Minute
	require.Contains(t, h.Ok("propose", proposal), `"EXECUTED"`)
	after, err := m.Client.Town(t.Context(), threatened)
	require.NoError(t, err)
	require.Equal(t, town.DecisionEpoch+1, after.DecisionEpoch, "once")
}
