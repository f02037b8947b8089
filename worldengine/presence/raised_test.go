package presence

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
)

// PLUGIN_ABSENT is raised when the absence has lasted, with its beginning and the policy for
// commands.
func TestAnAbsenceIsRaisedWhenItHasLasted(t *testing.T) {
	t.Parallel()
	for policy, prospect := range map[apply.Absent]string{
		apply.AbsentFail: "Each fails with PLUGIN_UNAVAILABLE",
		apply.AbsentWait: "They wait until a plugin subscribes.",
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, raised := opened()
				s.config.Policy = policy
				s.Absent(t.Context(), ofTown, 2, false)
				since := s.Since("t")
				require.False(t, since.IsZero())
				time.Sleep(time.Hour - 1)
				s.Absent(t.Context(), ofTown, 2, false)
				require.Empty(t, *raised)
				time.Sleep(time.Nanosecond)
				s.config.Now = func() time.Time { return since.Add(-time.Hour) } // it was set
				s.Absent(t.Context(), ofTown, 2, false)
				require.Len(t, *raised, 1)
				require.Equal(t, runevents.Timestamp(since), (*raised)[0].Since)
				require.Contains(t, (*raised)[0].Message, prospect)
				require.Equal(t, since, s.Since("t"))
			})
		})
	}
}

// Each town has an absence of its own, and each raises the alert.
func TestAbsencesOfTowns(t *testing.T) {
	t.Parallel()
	s, raised := opened()
	other := alerts.About{TownID: "u"}
	for range 2 {
		s.Absent(t.Context(), ofTown, 1, true)
		s.Absent(t.Context(), other, 1, true)
		require.Equal(t, 2, s.Count())
		s.Present(t.Context(), ofTown)
		require.Equal(t, 1, s.Count())
		require.False(t, s.Since("u").IsZero())
		s.NotNeeded("u")
		require.Zero(t, s.Count())
	}
	var codes []string
	for _, a := range *raised {
		codes = append(codes, string(a.Code)+" "+a.TownID)
	}
	once := []string{"PLUGIN_ABSENT t", "PLUGIN_ABSENT u", "PLUGIN_RETURNED t",
		"PLUGIN_RETURNED u"}
	require.Equal(t, append(once, once...), codes)
	s.Present(t.Context(), alerts.About{TownID: "nowhere"})
	require.Len(t, *raised, len(codes), "a plugin that was never absent does not return")
}

// Recall ignores alerts of another code, of no town, or with an invalid time.
func TestRecall_InvalidAlerts(t *testing.T) {
	t.Parallel()
	s, _ := opened()
	absent := func(townID, since string) alerts.Stored {
		return alerts.Stored{Alert: runevents.Alert{Code: runevents.PluginAbsent, TownID: townID,
			Since: since}}
	}
	s.Recall(func(_ context.Context, filter alerts.Filter, limit int) (alerts.Page, error) {
		require.Equal(t, []runevents.AlertCode{
			runevents.PluginAbsent, runevents.PluginReturned,
		}, filter.Codes, "alerts of other codes hide none of these")
		require.Equal(t, 2*alerts.Kept, limit, "all that are kept")
		return alerts.Page{Alerts: []alerts.Stored{
			{Alert: runevents.Alert{Code: runevents.PauseDrainTimeout, TownID: "t"}},
			absent("t", "2026-01-01T00:00:00Z"), absent("bad", "yesterday"), absent("none", ""),
			absent("", "2026-01-01T00:00:00Z"),
		}}, nil
	})(t.Context())
	require.Equal(t, 1, s.Count())
	require.Equal(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), s.Since("t"))
}

// Commands wait for missing alerts, but not for ever.
func TestAlertsThatDoNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, raised := opened()
		recall := s.Recall(func(
			ctx context.Context, _ alerts.Filter, _ int,
		) (alerts.Page, error) {
			<-ctx.Done()
			return alerts.Page{}, ctx.Err()
		})
		began := time.Now()
		go recall(t.Context())
		s.Absent(t.Context(), ofTown, 1, true)
		require.Equal(t, recallTimeout, time.Since(began))
		require.Len(t, *raised, 1)
		s.Present(t.Context(), ofTown)
		require.Len(t, *raised, 2)
	})
}
