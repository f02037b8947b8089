package alerts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
)

// Each alert of the engine has the severity of its code, what it is about, and a text that names
// what an operator has to look at.
func TestAlertsOfTheEngine(t *testing.T) {
	t.Parallel()
	env := alerts.Environment{TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod"}
	of := alerts.About{TownID: "market", HandoffID: "handoff-1", RunID: "run-1"}
	since := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	const at = "2026-02-16T10:00:00.000Z"
	run := runevents.Identity{RunID: "run-1"}
	for name, c := range map[string]struct {
		alert runevents.Alert
		code  runevents.AlertCode
		about [4]string // run, handoff, town, since
		says  []string
	}{
		"late answer": {env.LateAnswer(of), runevents.PluginLateAnswer,
			[4]string{"run-1", "handoff-1"},
			[]string{`"market"`, "handoff-1", "put its true state"}},
		"double answer": {env.DoubleAnswer(of), runevents.PluginDoubleAnswer,
			[4]string{"run-1", "handoff-1"}, []string{`"market"`, "second plugin"}},
		"in doubt": {env.InDoubt(of), runevents.ApplyInDoubt,
			[4]string{"run-1", "handoff-1"}, []string{`"market"`, "handoff-1", "look at the game"}},
		"cancelled by force": {env.CancelledByForce(of, "ada"), runevents.ApplyInDoubt,
			[4]string{"run-1", "handoff-1"},
			[]string{"ada asked to cancel run run-1", "look at the game"}},
		"invalid state": {env.StateInvalid(of), runevents.PluginStateInvalid,
			[4]string{"run-1", "handoff-1"}, []string{`"market"`, "put its true state"}},
		"plugin absent": {env.PluginAbsent(of, since, 3, "They wait."), runevents.PluginAbsent,
			[4]string{"run-1", "handoff-1", "market", at},
			[]string{`"market"`, at, "commands in hand: 3. They wait. Start the game server"}},
		"plugin returned": {env.PluginReturned(of, since), runevents.PluginReturned,
			[4]string{"run-1", "handoff-1", "market", at}, []string{`"market"`, "again", at}},
		"plugin not needed": {env.PluginNotNeeded("market", since), runevents.PluginReturned,
			[4]string{"", "", "market", at}, []string{`"market"`, "bound to something else", at}},
		"left waiting": {env.LeftWaiting(run, "market", nil), runevents.RunLeftWaiting,
			[4]string{"run-1"}, []string{`"market"`, "The run was cancelled", "the key is free"}},
		"left waiting, not cancelled": {env.LeftWaiting(run, "market", errors.New("no room")),
			runevents.RunLeftWaiting, [4]string{"run-1"},
			[]string{`"market"`, "cannot be cancelled: no room", "handoffctl run cancel"}},
		"drain of a town": {env.DrainTimeout("signal", "market", 5*time.Second),
			runevents.PauseDrainTimeout, [4]string{"signal"},
			[]string{"5s after the pause of market", "handoffctl status"}},
		"drain of the world": {env.DrainTimeout("signal", "", 5*time.Second),
			runevents.PauseDrainTimeout, [4]string{"signal"},
			[]string{"after the pause of the world"}},
		"log lost": {env.LogLost("No handoff is judged", errors.New("a gap")), runevents.LogLost,
			[4]string{}, []string{"No handoff is judged: a gap"}},
		"storage failed": {env.StorageFailed(errors.New("disk full")), runevents.StorageFailed,
			[4]string{}, []string{"STORAGE_FULL: disk full. Make room on the disk"}},
		"storage recovered": {env.StorageRecovered(since), runevents.StorageRecovered,
			[4]string{}, []string{"room again", at}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := c.alert
			require.Equal(t, c.code, a.Code)
			require.Equal(t, c.code.Severity(), a.Severity)
			require.Equal(t, [3]string{"tenant", "project", "prod"},
				[3]string{a.TenantID, a.ProjectID, a.EnvironmentID})
			require.Equal(t, c.about, [4]string{a.RunID, a.HandoffID, a.TownID, a.Since})
			for _, text := range c.says {
				require.Contains(t, a.Message, text)
			}
		})
	}
}
