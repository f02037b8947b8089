package alerts_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/alerts/alertstest"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/texts.txt anew")

// testdata/texts.txt has each alert of the engine: its code, severity and text, and the town and the
// time of one about a town's condition.
func TestTemplate_Golden(t *testing.T) {
	t.Parallel()
	about := alerts.About{TownID: "market", HandoffID: "handoff-1", RunID: "run-1"}
	since := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	var got strings.Builder
	for _, a := range []runevents.Alert{
		alerts.LateAnswer.Alert(about), alerts.DoubleAnswer.Alert(about),
		alerts.InDoubt.Alert(about, "{why}", "Lost."),
		alerts.CancelledByForce.Alert(about, "{actor}", "ada"),
		alerts.StateInvalid.Alert(about, "{why}", "No town."),
		alerts.GameAbsent.AlertSince(about, since, "{commands}", "3", "{prospect}", "They wait."),
		alerts.GameReturned.AlertSince(about, since), alerts.GameNotNeeded.AlertSince(about, since),
		alerts.LeftWaiting.Alert(about), alerts.LeftUncancelled.Alert(about, "{error}", "no room"),
		alerts.DrainTimeout.Alert(about, "{timeout}", "5s", "{paused}", "the world"),
		alerts.LogLost.Alert(about, "{effect}", "Nothing is committed", "{error}", "a gap"),
		alerts.LogLimited.Alert(about, "{error}", "a limit"),
		alerts.TownDamaged.Alert(about, "{log}", "The log", "{why}", "a hole"),
		alerts.CommitsUndelivered.Alert(about, "{counted}", "9", "{delivered}", "8"),
		alerts.ReplicaDamaged.Alert(about, "{node}", "n1", "{missing}", "sequence 7", "{effect}", "It leads", "{remedy}", "Empty it"),
		alerts.CommitDamaged.Alert(about, "{sequence}", "7", "{error}", "No JSON."),
		alerts.HistoryFull.AlertSince(about, since, "{failed}", "9", "{epoch}", "3"),
		alerts.HistoryRecovered.AlertSince(about, since),
		alerts.ProjectorLag.AlertSince(about, since, "{lag}", "9s", "{max}", "5s"),
		alerts.StorageFailed.Alert(about, "{error}", "disk full"),
		alerts.StorageRecovered.Alert(about, "{since}", runevents.Timestamp(since)),
		alerts.AlertsLost.Alert(about, "{stream}", "WORLD_main_ALERTS"),
		alerts.TownMended.AlertSince(about, since, "{restored}", "7", "{day}", "3", "{sequence}", "9", "{loss}", "are lost"),
	} {
		require.Equal(t, "run-1 handoff-1", a.RunID+" "+a.HandoffID)
		fmt.Fprintln(&got, a.Code, a.Severity, a.TownID, a.Since)
		fmt.Fprintln(&got, " ", a.Message)
	}
	event := &runevents.Record{RunSeq: 7}
	event.EventID = "event-1"
	for _, a := range []runevents.Alert{
		alerts.RunReread.EventAlert(event, "{runSeq}", "7", "{watermark}", "3"),
		alerts.Undelivered.EventAlert(event, "{subject}", "s", "{stream}", "S", "{source}", "log sequence", "{sequence}", "9",
			"{reason}", "too large"),
	} {
		fmt.Fprintln(&got, a.Code, a.Severity, a.EventID, a.RunSeq)
		fmt.Fprintln(&got, " ", a.Message)
	}
	require.NotContains(t, got.String(), "{", "a value without its name")
	schemastest.Golden(t, "testdata/texts.txt", got.String(), *rewrite)
}

// An alert that is not about a run event has the ids of the environment.
func TestRaise_Environment(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	a := w.open(func(c *alerts.Config) {
		c.TenantID, c.ProjectID, c.EnvironmentID = "tenant", "project", "prod"
	})
	a.Start()
	a.Raise(handoffAlert("h"))
	a.Raise(runevents.Alert{Code: runevents.InvalidTransition, RunID: "other", TenantID: "t"})
	a.Close(t.Context())
	var ids []string
	for _, alert := range alertstest.Raised(t, w.js) {
		ids = append(ids, alert.TenantID+" "+alert.ProjectID+" "+alert.EnvironmentID)
	}
	require.Equal(t, []string{"tenant project prod", "t  "}, ids)
}
