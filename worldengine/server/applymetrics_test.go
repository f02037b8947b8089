package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/server"
)

// withMetrics serves metrics over HTTP.
func withMetrics(config *server.Config) { config.HTTP = "127.0.0.1:0" }

func scrape(t testing.TB, srv *server.Server) string {
	t.Helper()
	answer, err := http.Get(strings.TrimSuffix(srv.HTTP(), "/") + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(body)
}

func scrapesSoon(t testing.TB, srv *server.Server, line string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(scrape(t, srv), line+"\n") },
		30*time.Second, 50*time.Millisecond, "%s", line)
}

// Each attempt of a game is counted by how it ended, and what is being applied as long as it is.
func TestMetricsOfAttempts(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, withMetrics, func(c *server.Config) {
		c.Engine.Plugin = apply.Policy{Deadline: time.Minute, Attempts: 2,
			Backoff: time.Millisecond}
	})
	c, free := connect(t, srv), make(chan struct{})
	host(t, srv, func(command *apply.Command, _ int) (apply.Answer, bool) {
		if command.LogicalAttemptID == 1 {
			again := apply.Done(command)
			again.Status, again.Retryable = apply.Refused, true
			return again, true
		}
		<-free
		return apply.Done(command), true
	})
	at := c.put(snapshot("t"), "")
	reply := c.sendLater(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	scrapesSoon(t, srv,
		`handoffd_apply_attempts_total{binding="plugin",outcome="PLUGIN_REJECTED"} 1`)
	scrapesSoon(t, srv, `handoffd_commands_applying 1`)
	require.NotContains(t, scrape(t, srv), `outcome="applied"`)
	close(free)
	require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
	got := scrape(t, srv)
	require.Contains(t, got, `handoffd_apply_attempts_total{binding="plugin",outcome="applied"} 1`+
		"\n")
	require.Contains(t, got, `handoffd_apply_duration_seconds_count{binding="plugin"} 2`+"\n")
	require.Contains(t, got, `handoffd_commands_applying 0`+"\n")
}

// The towns that are paused are counted by every engine of the world, and by one that starts later.
func TestMetricsOfPausedTowns(t *testing.T) {
	t.Parallel()
	quick := func(c *server.Config) { c.Engine.Plugin.Resend = 20 * time.Millisecond }
	srv := start(t, quick, withMetrics, open)
	engines := []*worldengine.Engine{beside(t, srv, quick)}
	counted := func(want int) {
		t.Helper()
		for _, engine := range engines {
			require.Eventually(t, func() bool {
				return engine.Stats().TownsPaused == want
			}, 30*time.Second, 10*time.Millisecond)
		}
		scrapesSoon(t, srv, fmt.Sprint("handoffd_towns_paused ", want))
	}
	c := connect(t, srv)
	for _, town := range []string{"a", "b", "c"} {
		c.put(snapshot(town), "")
	}
	for _, town := range []string{"a", "b"} {
		require.Empty(t, c.request("control.pause",
			mustJSON(t, map[string]string{"townId": town})).Header.Get("Nats-Service-Error-Code"))
	}
	engines = append(engines, beside(t, srv, quick))
	counted(2)
	require.Contains(t, scrape(t, srv), "handoffd_world_paused 0\n")
	require.Empty(t, c.request("control.resume",
		mustJSON(t, map[string]string{"townId": "a"})).Header.Get("Nats-Service-Error-Code"))
	counted(1)
}
