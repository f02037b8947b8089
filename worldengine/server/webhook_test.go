package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
	"worldengine/worldengine/webhook"
)

// A webhook gets what begins to wait for approval, and alerts, while one that never answers keeps
// no handoff waiting.
func TestWebhook_ApprovalsAndAlerts(t *testing.T) {
	t.Parallel()
	posted := make(chan []byte, 10)
	takes := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			posted <- body
		}
	}))
	hanging := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hanging }))
	t.Cleanup(func() { close(hanging); takes.Close(); hangs.Close() })

	c := connect(t, start(t, askFor("PROJECT_ADVANCE"), func(c *server.Config) {
		c.Engine.Plugin = apply.Policy{Deadline: 100 * time.Millisecond, Attempts: 1,
			Resend: 50 * time.Millisecond, Absent: apply.AbsentFail}
		c.Webhook = webhook.Config{Format: webhook.JSON, URLs: []string{hangs.URL, takes.URL}}
	}))
	type body struct {
		World, Text string
		Approval    struct{ TownID, HandoffID, HandoffHash, ActorID, Command, Expires string }
		Alert       struct{ Code, Severity, TownID string }
	}
	next := func() (b body) {
		require.NoError(t, json.Unmarshal(<-posted, &b))
		return b
	}
	at := c.put(snapshot("t"), "")
	for range 2 { // asked once, however often it is sent
		require.Equal(t, handoff.ReasonApprovalRequired,
			c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))).result.ReasonCode)
	}
	waits := c.approvals(map[string]any{}).Approvals[0]
	got := next()
	require.Equal(t, "main", got.World)
	require.Equal(t, [3]string{"t", waits.HandoffID, waits.HandoffHash},
		[3]string{got.Approval.TownID, got.Approval.HandoffID, got.Approval.HandoffHash})
	require.Equal(t, waits.Command, got.Approval.Command)
	require.Contains(t, got.Text, "handoffctl approve "+waits.HandoffID)

	request := putRequest(snapshot("away"), "")
	request["apply"] = "plugin"
	away := call[townReply](c, "town.put", schemas.TownGetReply, request)
	require.Equal(t, handoff.Failed,
		c.send(marshalled(t, propose(away, handoff.TalkToTownsfolk, "casual"))).result.Status)
	got = next()
	require.Equal(t, [3]string{"PLUGIN_ABSENT", "P2", "away"},
		[3]string{got.Alert.Code, got.Alert.Severity, got.Alert.TownID})
}
