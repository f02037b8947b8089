package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

var floodAppends = flag.Int("flood.appends", 150,
	"how many appends of invalid events one client sends without waiting")

// floodEvents is how many invalid events an append of the flood has: each is one INVALID_TRANSITION
// and one PROJECTOR_CAUSAL_VIOLATION.
const floodEvents = 110

// TestAlerts_FloodOfInvalidEvents: one client appends invalid events as fast as it can. Alerts of
// others stay, each run has one alert a code, memory of what happened is bounded, and a restart
// raises nothing again.
func TestAlerts_FloodOfInvalidEvents(t *testing.T) {
	var log journal
	data := t.TempDir()
	begin := func() (*server.Server, *client) {
		srv, err := server.Start(t.Context(), configure(open, projecting(true, &log),
			func(c *server.Config) { c.Data = data }))
		require.NoError(t, err)
		return srv, connect(t, srv)
	}
	srv, c := begin()
	urgent := raiseUrgent(t, c, 5)

	began := time.Now()
	answers, behind := c.flood(*floodAppends)
	t.Logf("%d appends of %d events in %v: %v; up to %d messages and %v behind; RSS %s",
		*floodAppends, floodEvents, time.Since(began).Round(time.Millisecond), answers.codes,
		behind.messages, behind.lag, residentMemory())
	require.NotZero(t, answers.codes["200"])
	require.Zero(t, answers.other(), "an append is stored, or refused as OVERLOADED: %v", answers.codes)
	require.LessOrEqual(t, behind.messages, int64(runs.MaxUndigested/floodEvents+1),
		"what is not projected yet is bounded")
	c.awaitProjected(t)

	all := everyAlert(c)
	requireOnePerRunAndCode(t, all)
	for _, run := range urgent {
		require.Contains(t, alertIDs(all), "APPLY_IN_DOUBT|"+run+"|")
	}
	found := c.alertCounts(t)
	require.Zero(t, found.AlertsLost)
	t.Logf("alerts listed: %d; counts: %+v; log: %d bytes", len(all), found, len(log.String()))
	require.Less(t, len(log.String()), 200_000)
	require.Contains(t, alertIDs(all), "INVALID_TRANSITION|"+answers.first.RunID+"|"+answers.first.EventID)
	require.EqualValues(t, floodEvents-1, moreOf(all, answers.first.RunID, "INVALID_TRANSITION"))

	stop(t, srv)
	logged := len(log.alerts(t))
	srv, c = begin()
	t.Cleanup(func() { stop(t, srv) })
	c.awaitProjected(t)
	again := everyAlert(c)
	require.Equal(t, alertIDs(all), alertIDs(again)[len(again)-len(all):], "what was raised is kept")
	requireOnePerRunAndCode(t, again)
	known := alertIDs(all)
	for _, line := range log.alerts(t)[logged:] {
		for _, id := range known {
			require.NotEqual(t, strings.Fields(line)[1], id[strings.LastIndex(id, "|")+1:])
		}
	}
}

// raiseUrgent stores P1 alerts as an engine does, and returns their runs.
func raiseUrgent(t *testing.T, c *client, count int) (runs []string) {
	t.Helper()
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	for i := range count {
		alert := runevents.Alert{
			Code: runevents.ApplyInDoubt, Severity: runevents.P1, RunID: fmt.Sprint("urgent-", i),
			Message: "In doubt.", At: runevents.Timestamp(time.Now()),
		}
		_, err := js.Publish(t.Context(), wire.AlertSubject("main", string(alert.Code)),
			mustJSON(t, alert), jetstream.WithMsgID(alert.ID()))
		require.NoError(t, err)
		runs = append(runs, alert.RunID)
	}
	return runs
}

// floodAnswers are the answers to a flood: how many of each code, and the first event of all.
type floodAnswers struct {
	codes map[string]int
	first runevents.Write
}

// other returns how many answers say neither that events were stored nor that there is no room.
func (a *floodAnswers) other() (n int) {
	for code, count := range a.codes {
		if code != "200" && code != "429" {
			n += count
		}
	}
	return n
}

// floodBehind is the most by which the projector was behind during a flood.
type floodBehind struct {
	messages int64
	lag      time.Duration
}

// flood sends appends, of one run each, on one connection without waiting for answers.
func (c *client) flood(appends int) (answers floodAnswers, worst floodBehind) {
	c.t.Helper()
	answers.codes = map[string]int{}
	inbox := nats.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	require.NoError(c.t, err)
	require.NoError(c.t, sub.SetPendingLimits(-1, -1))
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			s := c.stats()
			worst.messages = max(worst.messages, *s.ProjectorBehind)
			worst.lag = max(worst.lag, time.Duration(*s.ProjectorLagMs)*time.Millisecond)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	for i := range appends {
		writes := make([]runevents.Write, floodEvents)
		for n := range writes {
			writes[n] = written(fmt.Sprint("flood-", i), runevents.StepCompleted, fmt.Sprint("s", n), 1)
		}
		if i == 0 {
			answers.first = writes[0]
		}
		require.NoError(c.t, c.nc.PublishRequest(wire.Subject(c.world, "run.append"), inbox,
			mustJSON(c.t, appendRequest("t", writes...))))
	}
	for range appends {
		msg, err := sub.NextMsg(time.Minute)
		require.NoError(c.t, err)
		code := msg.Header.Get(wire.ErrorCodeHeader)
		if code == "" {
			code = "200"
		}
		if code == "429" {
			require.NotEmpty(c.t, msg.Header.Get(wire.RetryAfterHeader))
		}
		answers.codes[code]++
	}
	close(done)
	watching.Wait()
	return answers, worst
}

// awaitProjected waits until everything is projected.
func (c *client) awaitProjected(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		s := c.stats()
		return *s.ProjectorBehind == 0 && *s.ProjectorLagMs == 0
	}, time.Minute, 20*time.Millisecond)
}

// alertCounts are the statistics about alerts.
type alertCounts struct {
	Alerts     map[string]int64
	AlertsLost int64
}

func (c *client) alertCounts(t *testing.T) alertCounts {
	t.Helper()
	reply, err := c.nc.Request("$SRV.STATS."+wire.ServiceName, nil, 30*time.Second)
	require.NoError(t, err)
	var s struct{ Endpoints []struct{ Data alertCounts } }
	require.NoError(t, json.Unmarshal(reply.Data, &s))
	return s.Endpoints[0].Data
}

// everyAlert returns all pages of the alerts.
func everyAlert(c *client) (all []alert) {
	for after, more := uint64(0), true; more; {
		page := alertList(c, map[string]any{"after": after, "limit": 200})
		all = append(all, page.Alerts...)
		after, more = page.Next, page.Next > 0
	}
	return all
}

func alertIDs(all []alert) (ids []string) {
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids
}

func requireOnePerRunAndCode(t *testing.T, all []alert) {
	t.Helper()
	seen := map[string]bool{}
	for _, a := range all {
		key := a.Code + "|" + a.RunID
		require.False(t, seen[key], "%s is listed twice", key)
		seen[key] = true
	}
}

// moreOf returns how many more alerts of a run and code the listed one stands for.
func moreOf(all []alert, runID, code string) int64 {
	for _, a := range all {
		if a.RunID == runID && a.Code == code {
			return a.More
		}
	}
	return -1
}

// residentMemory returns the memory of this process, for the figures of a larger flood.
func residentMemory() string {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return runtime.GOOS + " does not say"
}
