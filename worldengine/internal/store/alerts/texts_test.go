package alerts_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/alerts/alertstest"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/texts.txt anew")

// testdata/texts.txt has each alert of the engine: its code, severity and text, and the town and the
// time of one about a town's condition.
func TestText_Golden(t *testing.T) {
	t.Parallel()
	about := alerts.About{TownID: "market", HandoffID: "handoff-1", RunID: "run-1"}
	since := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	var got strings.Builder
	for _, a := range []runevents.Alert{
		alerts.LateAnswer.About(about), alerts.DoubleAnswer.About(about),
		alerts.InDoubt.About(about, "{why}", "Lost."),
		alerts.CancelledByForce.About(about, "{actor}", "ada"),
		alerts.StateInvalid.About(about, "{why}", "No town."),
		alerts.PluginAbsent.Since(about, since, "{commands}", "3", "{prospect}", "They wait."),
		alerts.PluginReturned.Since(about, since), alerts.PluginNotNeeded.Since(about, since),
		alerts.LeftWaiting.About(about), alerts.LeftUncancelled.About(about, "{error}", "no room"),
		alerts.DrainTimeout.About(about, "{timeout}", "5s", "{paused}", "the world"),
		alerts.LogLost.About(about, "{effect}", "Nothing is committed", "{error}", "a gap"),
		alerts.CommitDamaged.About(about, "{sequence}", "7", "{error}", "No JSON."),
		alerts.StorageFailed.About(about, "{error}", "disk full"),
		alerts.StorageRecovered.About(about, "{since}", runevents.Timestamp(since)),
	} {
		require.Equal(t, "run-1 handoff-1", a.RunID+" "+a.HandoffID)
		fmt.Fprintln(&got, a.Code, a.Severity, a.TownID, a.Since)
		fmt.Fprintln(&got, " ", a.Message)
	}
	const file = "testdata/texts.txt"
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// An alert that is not about a run event has the ids of the environment.
func TestRaise_Environment(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open(func(c *alerts.Config) {
		c.TenantID, c.ProjectID, c.EnvironmentID = "tenant", "project", "prod"
	})
	a.Start()
	a.Raise(aboutHandoff("h"))
	a.Raise(runevents.Alert{Code: runevents.InvalidTransition, RunID: "other", TenantID: "t"})
	a.Close(t.Context())
	var ids []string
	for _, alert := range alertstest.Raised(t, w.js) {
		ids = append(ids, alert.TenantID+" "+alert.ProjectID+" "+alert.EnvironmentID)
	}
	require.Equal(t, []string{"tenant project prod", "t  "}, ids)
}
