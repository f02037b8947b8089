package metrics_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// filled are metrics of a server with all features.
func filled() *metrics.Metrics {
	m := metrics.New("1.2.3")
	w := m.World("main")
	w.Handoff(handoff.Executed, 3*time.Millisecond)
	w.Request(wire.Handoff, "", 3*time.Millisecond)
	w.Request(wire.TownGet, wire.CodeUnknownTown, time.Millisecond)
	w.AppendTried(time.Millisecond)
	w.Attempt(apply.Plugin, apply.AttemptResult{Applied: true}, 300*time.Millisecond)
	w.Attempt(apply.Plugin,
		apply.AttemptResult{Failure: &apply.Failure{Reason: apply.ReasonGameUnavailable}}, time.Second)
	w.Attempt(apply.RCON, apply.RCON.FailInDoubt("cut off"), time.Second)
	lag, published := int64(1500), uint64(39)
	m.Watch(func(context.Context) metrics.Sample {
		return metrics.Sample{
			Worlds: []metrics.WorldSample{{
				World: "main", Serving: true,
				Stats: messages.Stats{
					Results: map[handoff.Status]int64{handoff.Executed: 7}, Unfinished: 2, Applying: 1,
					Indexed: 40, BusPublished: &published, ProjectorLagMs: &lag,
					AlertCounts: messages.AlertCounts{
						Alerts: map[runevents.AlertCode]int64{runevents.StorageFailed: 1}, AlertsLost: 1,
						AlertsMore: map[runevents.AlertCode]int64{runevents.InvalidTransition: 2},
					},
					StorageFull: "full", WorldPaused: true, TownsPaused: 4, PluginsAbsent: 2,
				},
				Overload: messages.Overload{
					Held: 3, HeldBytes: 4096, Refused: map[string]int64{"town": 5},
				},
				Streams: map[string]metrics.Stream{
					"LOG":        {Messages: 41, Bytes: 1000, LastSequence: 42},
					"DEADLETTER": {Messages: 1, Bytes: 10, LastSequence: 1},
				},
			}, {World: "standby", Stats: messages.Stats{Indexed: 3}}},
			StrayReplies: 6,
			Embedded:     &metrics.Embedded{DiskFree: 1 << 30, Connections: 9, SlowConsumers: 1},
			Webhooks:     &metrics.Webhooks{Sent: 5, Lost: 2},
		}
	})
	return m
}

func TestMetrics_Lint(t *testing.T) {
	t.Parallel()
	families, err := filled().Gatherer().Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	for _, family := range families {
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				require.Contains(t, []string{"status", "verb", "code", "reason", "stream",
					"version", "binding",
					"outcome", "world", "state"}, label.GetName(),
					"%s: a label with a town, an actor or a run would grow with the world",
					family.GetName())
			}
		}
		if !strings.HasPrefix(family.GetName(), "go_") &&
			!strings.HasPrefix(family.GetName(), "process_") {
			require.True(t, strings.HasPrefix(family.GetName(), "handoffd_"), family.GetName())
		}
	}
}

func TestMetrics_Served(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	filled().Handler(slog.New(slog.DiscardHandler)).ServeHTTP(recorder,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	for _, line := range []string{
		`handoffd_handoffs_total{status="executed",world="main"} 7`,
		`handoffd_requests_total{code="UNKNOWN_TOWN",verb="town.get",world="main"} 1`,
		`handoffd_requests_total{code="OK",verb="handoff",world="main"} 1`,
		`handoffd_request_duration_seconds_count{verb="handoff"} 1`,
		`handoffd_handoff_duration_seconds_count{status="executed",world="main"} 1`,
		`handoffd_handoff_duration_seconds_count{status="stale",world="main"} 0`,
		`handoffd_commit_duration_seconds_count{world="main"} 1`,
		`handoffd_requests_refused_total{reason="town",world="main"} 5`,
		`handoffd_requests_held_bytes{world="main"} 4096`, `handoffd_stray_replies_total 6`,
		`handoffd_log_last_sequence{world="main"} 42`, `handoffd_indexed_sequence{world="main"} 40`,
		`handoffd_bus_sequence{world="main"} 39`, `handoffd_dead_letters{world="main"} 1`,
		`handoffd_projector_lag_seconds{world="main"} 1.5`,
		`handoffd_alerts_total{code="STORAGE_FAILED",world="main"} 1`,
		`handoffd_world_paused{world="main"} 1`, `handoffd_writer{world="main"} 1`,
		`handoffd_writer{world="standby"} 0`, `handoffd_indexed_sequence{world="standby"} 3`,
		`handoffd_worlds{state="served"} 1`, `handoffd_worlds{state="not served"} 1`,
		`handoffd_apply_attempts_total{binding="plugin",outcome="applied",world="main"} 1`,
		`handoffd_apply_attempts_total{binding="plugin",outcome="PLUGIN_UNAVAILABLE",world="main"} 1`,
		`handoffd_apply_attempts_total{binding="plugin",outcome="PLUGIN_TIMEOUT",world="main"} 0`,
		`handoffd_apply_attempts_total{binding="rcon",outcome="RCON_IN_DOUBT",world="main"} 1`,
		`handoffd_apply_duration_seconds_count{binding="plugin",world="main"} 2`,
		`handoffd_towns_paused{world="main"} 4`, `handoffd_plugins_absent{world="main"} 2`,
		`handoffd_commands_applying{world="main"} 1`, `handoffd_storage_full{world="main"} 1`,
		`handoffd_nats_connections 9`, `handoffd_webhook_messages_total{outcome="lost"} 2`,
		`handoffd_build_info{version="1.2.3"} 1`,
	} {
		require.Contains(t, recorder.Body.String(), line+"\n")
	}
}

// Prometheus takes a counter that begins above 0 for no increase, so the counters of the alert rules
// are there before their first event, also while the server stands by.
func TestMetrics_CountersBeforeTheirFirstEvent(t *testing.T) {
	t.Parallel()
	m := metrics.New("1.2.3")
	m.World("w")
	m.Watch(func(context.Context) metrics.Sample {
		return metrics.Sample{Worlds: []metrics.WorldSample{{World: "w"}}}
	})
	text := scraped(t, m)
	for _, alert := range protocol.Alerts() {
		require.Contains(t, text, fmt.Sprintf("handoffd_alerts_total{code=%q,world=\"w\"} 0\n", alert.Code))
	}
	for _, verb := range protocol.Verbs() {
		for _, code := range []wire.Code{wire.CodeInternal, wire.CodeLogUnavailable} {
			require.Contains(t, text,
				fmt.Sprintf("handoffd_requests_total{code=%q,verb=%q,world=\"w\"} 0\n", code, verb))
		}
	}
	require.Contains(t, text,
		`handoffd_apply_attempts_total{binding="rcon",outcome="RCON_IN_DOUBT",world="w"} 0`)
}

// scraped returns the text of GET /metrics.
func scraped(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(recorder,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	return recorder.Body.String()
}

// One world's counts are not another's. A world that is removed leaves no series behind.
func TestMetrics_Worlds(t *testing.T) {
	t.Parallel()
	m := metrics.New("1.2.3")
	for _, world := range []string{"a", "b"} {
		w := m.World(world)
		w.Attempt(apply.Plugin, apply.AttemptResult{Applied: true}, time.Second)
		w.AppendTried(time.Millisecond)
		w.Request(wire.TownGet, "", time.Millisecond)
		w.Handoff(handoff.Executed, time.Millisecond)
	}
	m.World("b").Handoff(handoff.Executed, time.Millisecond)
	text := scraped(t, m)
	for _, line := range []string{
		`handoffd_handoff_duration_seconds_count{status="executed",world="a"} 1`,
		`handoffd_handoff_duration_seconds_count{status="executed",world="b"} 2`,
		`handoffd_request_duration_seconds_count{verb="town.get"} 2`,
	} {
		require.Contains(t, text, line+"\n")
	}
	m.Remove("b")
	text = scraped(t, m)
	require.NotContains(t, text, `world="b"`)
	require.Contains(t, text, `handoffd_commit_duration_seconds_count{world="a"} 1`)
}

// A world without traffic has as many series as docs/operators.md says, at most.
func TestMetrics_SeriesOfAWorld(t *testing.T) {
	t.Parallel()
	m := metrics.New("1.2.3")
	m.World("w")
	m.Watch(func(context.Context) metrics.Sample {
		return metrics.Sample{Worlds: []metrics.WorldSample{{
			World: "w", Serving: true, Streams: map[string]metrics.Stream{"LOG": {}, "ALERTS": {}},
			Stats:    messages.Stats{Results: map[handoff.Status]int64{handoff.Executed: 0}},
			Overload: messages.Overload{Refused: map[string]int64{"town": 0, "world": 0, "bytes": 0, "queue": 0}},
		}}}
	})
	series := strings.Count(regexp.MustCompile("(?m)^#.*\n").ReplaceAllString(scraped(t, m), ""), `world="w"`)
	require.LessOrEqual(t, series, 200)
}

// named returns the metrics that a text names, without a histogram's suffixes.
func named(text string) map[string]bool {
	names := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bhandoffd_[a-z_]+`).FindAllString(text, -1) {
		names[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")] = true
	}
	return names
}

// requireWorldIn requires that each expression of the dashboard about worlds goes by its variable world,
// and none about the process does.
func requireWorldIn(t *testing.T, dashboard string) {
	t.Helper()
	_, panels, _ := strings.Cut(dashboard, `"panels"`) // before are the variables
	uses := regexp.MustCompile(`handoffd_[a-z_]+\{[^}]*\}`).FindAllString(panels, -1)
	require.NotEmpty(t, uses)
	for _, use := range uses {
		for _, spec := range metrics.Specs() {
			if named(use)[spec.Name] {
				require.Equal(t, slices.Contains(spec.Labels, "world"),
					strings.Contains(use, `world=~\"$world\"`), use)
			}
		}
	}
}

// The dashboard, the alert rules and the operators' page name only existing metrics.
func TestMetrics_Deployed(t *testing.T) {
	t.Parallel()
	families, err := filled().Gatherer().Gather()
	require.NoError(t, err)
	exist := map[string]bool{}
	for _, family := range families {
		exist[family.GetName()] = true
	}
	files := []string{"../../../../docs/operators.md"}
	require.NoError(t,
		fs.WalkDir(os.DirFS("../../../../deploy"), ".",
			func(path string, entry fs.DirEntry, err error) error {
				if err == nil && !entry.IsDir() {
					files = append(files, "../../../../deploy/"+path)
				}
				return err
			}))
	seen := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for name := range named(string(data)) {
			require.True(t, exist[name], "%s names %s, which there is not", file, name)
			seen++
		}
	}
	require.Greater(t, seen, 30)
	dashboard, err := os.ReadFile("../../../../deploy/grafana/handoffd.json")
	require.NoError(t, err)
	requireWorldIn(t, string(dashboard))
	shown := named(string(dashboard))
	for _, name := range []string{"apply_attempts_total", "apply_duration_seconds", "towns_paused",
		"commands_applying", "approvals_waiting", "plugins_absent", "dead_letters", "build_info"} {
		require.True(t, shown["handoffd_"+name], "the dashboard does not show %s", name)
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_cpu_seconds_total",
		"go_memstats_heap_inuse_bytes"} {
		require.True(t, exist[name], "no metric is named %s", name)
		require.Contains(t, string(dashboard), name)
	}
}
