package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/messages"
)

func asks(c *server.Config) { c.Engine.RequireApproval = string(handoff.TalkToTownsfolk) }

// Send waits for a person's decision, and returns the result after it.
func TestSend_WaitsForApproval(t *testing.T) {
	t.Parallel()
	w := serve(t, asks)
	person := w.join("")
	for name, row := range map[string]struct {
		decision client.Decision
		status   handoff.Status
		reason   handoff.ReasonCode
	}{
		"approved":  {client.Decision{Decision: messages.Approve}, handoff.Executed, handoff.ReasonExecuted},
		"submitted": {client.Decision{Decision: messages.Approve, Submit: true}, handoff.Executed, handoff.ReasonExecuted},
		"denied":    {client.Decision{Decision: messages.Reject}, handoff.Rejected, handoff.ReasonApprovalDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := w.join("")
			found(t, c, name)
			h := talk(t, c, name)
			c.ApprovalWait = time.Hour
			asked := 0
			c.OnApproval = func(o *client.Outcome) {
				require.Equal(t, handoff.ReasonApprovalRequired, o.Result.ReasonCode)
				if asked++; asked > 1 {
					return
				}
				d := row.decision
				d.TownID, d.HandoffID, d.Reason = name, h.HandoffID, "because"
				_, err := person.Decide(t.Context(), d)
				require.NoError(t, err)
			}
			o, err := c.Send(t.Context(), h)
			require.NoError(t, err)
			require.Equal(t, []any{row.status, row.reason}, []any{o.Result.Status, o.Result.ReasonCode})
			require.Equal(t, 1, asked)
			require.NotEmpty(t, o.RunID)
		})
	}
}

// If nobody decides in time, Send returns the last result.
func TestSend_NobodyDecides(t *testing.T) {
	t.Parallel()
	w := serve(t, asks)
	c := w.join("")
	found(t, c, "slow")
	h := talk(t, c, "slow")
	c.ApprovalWait = 50 * time.Millisecond
	o, err := c.Send(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, handoff.ReasonApprovalRequired, o.Result.ReasonCode)
}
