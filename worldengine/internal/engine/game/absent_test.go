package game

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
)

// opened returns absences, and the alerts that they raise.
func opened(policy apply.AbsencePolicy) (*Absences, *raised) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	alerts := new(raised)
	return newAbsences(func() time.Time { return now }, &Config{
		Retry: apply.RetryPolicy{Resend: time.Hour, Absence: policy}, Alerts: alerts,
		Logger: slog.New(slog.DiscardHandler),
	}), alerts
}

var ofTown = alerts.About{TownID: "t", HandoffID: "handoff", RunID: "run"}

// PLUGIN_ABSENT is raised once for an absence, when it has lasted or ends an attempt, with its
// beginning and the policy for commands. The end of an absence raises PLUGIN_RETURNED if the first
// alert was raised.
func TestAbsences_Raise(t *testing.T) {
	t.Parallel()
	for policy, prospect := range map[apply.AbsencePolicy]string{
		apply.AbsenceFail: "commands in hand: 2. Each fails with PLUGIN_UNAVAILABLE",
		apply.AbsenceWait: "commands in hand: 2. They wait until the game is back.",
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, raised := opened(policy)
				s.NoteAbsent(t.Context(), ofTown, 2, false)
				s.NotePresent(t.Context(), ofTown)
				require.Empty(t, raised.alerts, "a plugin that reconnects")
				require.Zero(t, s.StartOf("t"))

				s.NoteAbsent(t.Context(), ofTown, 2, false)
				since := s.StartOf("t")
				require.False(t, since.IsZero())
				time.Sleep(time.Hour - 1)
				s.NoteAbsent(t.Context(), ofTown, 2, false)
				require.Empty(t, raised.alerts)
				time.Sleep(time.Nanosecond)
				s.now = func() time.Time { return since.Add(-time.Hour) } // it was set
				for range 2 {
					s.NoteAbsent(t.Context(), ofTown, 2, false)
				}
				require.Len(t, raised.alerts, 1)
				alert := raised.alerts[0]
				require.Equal(t, runevents.PluginAbsent, alert.Code)
				require.Equal(t, []string{"t", "run", "handoff", runevents.Timestamp(since)},
					[]string{alert.TownID, alert.RunID, alert.HandoffID, alert.Since})
				require.Contains(t, alert.Message, prospect)
				require.Equal(t, since, s.StartOf("t"))
			})
		})
	}
}

// Each town has an absence of its own, and each raises its alerts.
func TestAbsences_Towns(t *testing.T) {
	t.Parallel()
	s, raised := opened(apply.AbsenceFail)
	for range 2 {
		s.NoteAbsent(t.Context(), ofTown, 1, true)
		s.NoteAbsent(t.Context(), alerts.About{TownID: "u"}, 1, true)
		require.Equal(t, 2, len(s.towns))
		s.NotePresent(t.Context(), ofTown)
		require.Equal(t, 1, len(s.towns))
		require.False(t, s.StartOf("u").IsZero())
		s.NoteUnneeded("u")
		s.NoteUnneeded("u")
		require.Zero(t, len(s.towns))
	}
	var codes []string
	for _, a := range raised.alerts {
		codes = append(codes, string(a.Code)+" "+a.TownID)
	}
	once := []string{"PLUGIN_ABSENT t", "PLUGIN_ABSENT u", "PLUGIN_RETURNED t",
		"PLUGIN_RETURNED u"}
	require.Equal(t, append(once, once...), codes)
	s.NotePresent(t.Context(), alerts.About{TownID: "nowhere"})
	require.Len(t, raised.alerts, len(codes), "a plugin that was never absent does not return")
}

// The latest alert of earlier servers is known for each town, and is not raised again; commands wait
// for that. An alert of another code, of no town, or with an invalid time is ignored.
func TestAbsences_Recall(t *testing.T) {
	t.Parallel()
	s, raised := opened(apply.AbsenceFail)
	const since = "2026-01-01T00:00:00.000Z"
	stored := func(code runevents.AlertCode, townID, since string) messages.Alert {
		return messages.Alert{Alert: runevents.Alert{Code: code, TownID: townID, Since: since}}
	}
	raised.all = func(context.Context) ([]messages.Alert, error) {
		return []messages.Alert{
			stored(runevents.PluginAbsent, "", since),
			stored(runevents.PluginAbsent, "none", ""),
			stored(runevents.PluginAbsent, "bad", "yesterday"),
			stored(runevents.PluginAbsent, "back", since),
			stored(runevents.PluginReturned, "t", since),
			stored(runevents.PluginAbsent, "t", since),
			stored(runevents.PluginReturned, "back", since),
			stored(runevents.PauseDrainTimeout, "t", since),
		}, nil
	}
	s.NoteAbsent(t.Context(), ofTown, 1, true)
	require.Equal(t, 1, len(s.towns))
	require.Equal(t, since, runevents.Timestamp(s.StartOf("t")))
	require.Empty(t, raised.alerts, "it was raised before")
	s.NotePresent(t.Context(), ofTown)
	require.Len(t, raised.alerts, 1)
	require.Equal(t, since, raised.alerts[0].Since)
}

// A command waits for alerts that do not come, but not for ever, and not for unreadable ones.
func TestAbsences_RecallFails(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"unreadable": 0, "silent": recallTimeout} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, raised := opened(apply.AbsenceFail)
				raised.all = func(ctx context.Context) ([]messages.Alert, error) {
					if wait > 0 {
						<-ctx.Done()
					}
					return nil, errors.New("no answer")
				}
				began := time.Now()
				s.NoteAbsent(t.Context(), ofTown, 1, true)
				require.Equal(t, wait, time.Since(began))
				require.Len(t, raised.alerts, 1)
			})
		})
	}
}
