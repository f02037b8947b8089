package alerts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/alerts/alertstest"
)

// Each alert of the engine has its code, its subject, a text without open places, and the ids of the
// environment.
func TestText_About(t *testing.T) {
	t.Parallel()
	about := alerts.About{TownID: "market", HandoffID: "handoff-1", RunID: "run-1"}
	since := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	const at = "2026-02-16T10:00:00.000Z"
	for _, c := range []struct {
		alert runevents.Alert
		code  runevents.AlertCode
		text  string
	}{
		{alerts.LateAnswer.About(about), runevents.PluginLateAnswer,
			`"market" says that it applied handoff-1 after`},
		{alerts.DoubleAnswer.About(about), runevents.PluginDoubleAnswer, "second plugin"},
		{alerts.InDoubt.About(about), runevents.ApplyInDoubt, "look at the game"},
		{alerts.CancelledByForce.About(about, "{actor}", "ada"), runevents.ApplyInDoubt,
			`ada asked to cancel run run-1 of town "market" by force`},
		{alerts.StateInvalid.About(about), runevents.PluginStateInvalid, "put its true state"},
		{alerts.PluginAbsent.Since(about, since, "{commands}", "3", "{prospect}", "They wait."),
			runevents.PluginAbsent, at + "; commands in hand: 3. They wait. Start the game server"},
		{alerts.PluginReturned.Since(about, since), runevents.PluginReturned, "none since " + at},
		{alerts.PluginNotNeeded.Since(about, since), runevents.PluginReturned,
			"bound to something else. It had none since " + at},
		{alerts.LeftWaiting.About(about), runevents.RunLeftWaiting, "The run was cancelled"},
		{alerts.LeftUncancelled.About(about, "{error}", "no room"), runevents.RunLeftWaiting,
			"cannot be cancelled: no room. It is tried again"},
		{alerts.DrainTimeout.About(about, "{timeout}", "5s", "{paused}", "the world"),
			runevents.PauseDrainTimeout, "5s after the pause of the world"},
		{alerts.LogLost.About(about, "{effect}", "Nothing is committed", "{error}", "a gap"),
			runevents.LogLost, "Nothing is committed: a gap"},
		{alerts.CommitDamaged.About(about, "{sequence}", "7", "{error}", "No JSON."),
			runevents.CommitDamaged, "log sequence 7 cannot be read: No JSON. Run handoffctl fsck."},
		{alerts.StorageFailed.About(about, "{error}", "disk full"), runevents.StorageFailed,
			"STORAGE_FULL: disk full. Make room"},
		{alerts.StorageRecovered.About(about, "{since}", at), runevents.StorageRecovered,
			"nothing was stored since " + at},
	} {
		a := c.alert
		require.Equal(t, c.code, a.Code)
		require.Equal(t, c.code.Severity(), a.Severity)
		require.Equal(t, [2]string{"run-1", "handoff-1"}, [2]string{a.RunID, a.HandoffID})
		require.Contains(t, a.Message, c.text)
		require.NotContains(t, a.Message, "{")
		if a.Code == runevents.PluginAbsent || a.Code == runevents.PluginReturned {
			require.Equal(t, [2]string{"market", at}, [2]string{a.TownID, a.Since})
		} else {
			require.Empty(t, a.TownID+a.Since)
		}
	}
	w := newAlertWorld(t)
	a := w.open(func(c *alerts.Config) {
		c.TenantID, c.ProjectID, c.EnvironmentID = "tenant", "project", "prod"
	})
	a.Start()
	a.Raise(alerts.InDoubt.About(about))
	a.Raise(runevents.Alert{Code: runevents.InvalidTransition, RunID: "other", TenantID: "t"})
	a.Close(t.Context())
	all := alertstest.Raised(t, w.js)
	require.Equal(t, "tenant project prod",
		all[0].TenantID+" "+all[0].ProjectID+" "+all[0].EnvironmentID)
	require.Equal(t, "t", all[1].TenantID+all[1].ProjectID+all[1].EnvironmentID)
}
