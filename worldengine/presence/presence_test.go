package presence

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
)

// opened returns absences, and the alerts that they raise.
func opened() (*Absences, *[]runevents.Alert) {
	var raised []runevents.Alert
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return New(Config{
		After: time.Hour, Policy: apply.AbsentFail, Now: func() time.Time { return now },
		Raise:  func(a runevents.Alert) { raised = append(raised, a) },
		Logger: slog.New(slog.DiscardHandler),
	}), &raised
}

var ofTown = alerts.About{TownID: "t", HandoffID: "handoff", RunID: "run"}

// An absence raises one alert, with its beginning, and its end another, unless the first was not
// raised.
func TestAnAbsenceRaisesOneAlert(t *testing.T) {
	t.Parallel()
	s, raised := opened()
	s.Absent(t.Context(), ofTown, 1, false)
	require.Empty(t, *raised, "a plugin may only reconnect")
	require.Equal(t, 1, s.Count())
	s.Present(t.Context(), ofTown)
	require.Empty(t, *raised)
	require.Zero(t, s.Since("t"))

	for range 2 {
		s.Absent(t.Context(), ofTown, 3, true)
	}
	require.Len(t, *raised, 1)
	alert := (*raised)[0]
	require.Equal(t, runevents.PluginAbsent, alert.Code)
	require.Equal(t, []string{"t", "run", "handoff", runevents.Timestamp(s.Since("t"))},
		[]string{alert.TownID, alert.RunID, alert.HandoffID, alert.Since})
	require.Contains(t, alert.Message, "commands in hand: 3. Each fails with PLUGIN_UNAVAILABLE")
	for range 2 {
		s.NotNeeded("t")
	}
	require.Len(t, *raised, 2)
	require.Equal(t, runevents.PluginReturned, (*raised)[1].Code)
}

// If another server binds a town to something else, that town's absence ends, and no other.
func TestAnAbsenceEndsWhereNoPluginIsNeeded(t *testing.T) {
	t.Parallel()
	s, raised := opened()
	for _, town := range []string{"bound elsewhere", "unreadable", "waits"} {
		s.Absent(t.Context(), alerts.About{TownID: town}, 1, true)
	}
	*raised = nil
	var asked []string
	s.Review(t.Context(), func(_ context.Context, townID string) (bool, error) {
		asked = append(asked, townID)
		if townID == "unreadable" {
			return false, errors.New("no answer")
		}
		return townID == "waits", nil
	})
	require.Equal(t, []string{"bound elsewhere", "unreadable", "waits"}, asked)
	require.Equal(t, 2, s.Count())
	require.Len(t, *raised, 1)
	require.Equal(t, "bound elsewhere", (*raised)[0].TownID)
	require.Equal(t, runevents.PluginReturned, (*raised)[0].Code)
}

// The latest alert of earlier servers is known for each town; commands wait for that.
func TestAbsencesAreRecalled(t *testing.T) {
	t.Parallel()
	s, raised := opened()
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(code runevents.AlertCode, townID string) alerts.Stored {
		return alerts.Stored{Alert: runevents.Alert{
			Code: code, TownID: townID, Since: runevents.Timestamp(since),
		}}
	}
	recall := s.Recall(func(context.Context, alerts.Filter, int) (alerts.Page, error) {
		return alerts.Page{Alerts: []alerts.Stored{
			of(runevents.PluginReturned, "back"), of(runevents.PluginAbsent, "t"),
			of(runevents.PluginReturned, "t"), of(runevents.PluginAbsent, "back"),
		}}, nil
	})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s.Absent(over, ofTown, 1, true)
	require.Zero(t, s.Count(), "it waits")
	recall(t.Context())
	require.Equal(t, 1, s.Count())
	require.Equal(t, since, s.Since("t"))
	s.Absent(t.Context(), ofTown, 1, true)
	require.Empty(t, *raised, "it was raised before")
	s.Present(t.Context(), ofTown)
	require.Len(t, *raised, 1)
	require.Equal(t, runevents.Timestamp(since), (*raised)[0].Since)
}

// Unreadable alerts do not hold commands back.
func TestAlertsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s, raised := opened()
	s.Recall(func(context.Context, alerts.Filter, int) (alerts.Page, error) {
		return alerts.Page{}, errors.New("no answer")
	})(t.Context())
	s.Absent(t.Context(), ofTown, 1, true)
	require.Len(t, *raised, 1)
}
