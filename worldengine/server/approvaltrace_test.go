package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/trace"
	"worldengine/worldengine/server"
)

// A handoff that is carried out with its approval has the trace with which its agent asked, in the
// request to the plugin and in its events, also where the server was started again meanwhile.
func TestATraceOfWhatIsApproved(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	change := []func(*server.Config){byPlugin, askFor("PROJECT_ADVANCE"),
		func(config *server.Config) { config.Data = data }}
	srv, err := server.Start(t.Context(), configure(change...))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	first := c.resultOf(<-c.sendTraced(body, traced(1).Header(nil)))
	requireUnapproved(t, first, handoff.ReasonApprovalRequired, takesApproval)
	c.requireTrace(first.runID, traced(1))
	again := c.resultOf(<-c.sendTraced(body, traced(2).Header(nil)))
	c.requireTrace(again.runID, traced(2))
	stop(t, srv)

	srv = start(t, change...)
	c = connect(t, srv)
	asked := c.requests()
	g := host(t, srv, agree)
	request := decision(first.result.HandoffID, "approve", "ada")
	request["submit"] = true
	d := c.decide(request)
	require.Nil(t, d.NotSubmitted)
	require.NotEmpty(t, g.commands())
	require.NotEmpty(t, asked)
	requireAsked(t, asked, traced(1))
	c.requireTrace(d.RunID, traced(1))
	c.requireTrace(d.SignalID, trace.Context{})
}
