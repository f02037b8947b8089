package worldengine

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town"
)

// anApplication is a pending command that takes a town from day 3 to day 4.
func anApplication(t *testing.T, attempt int64) *application {
	t.Helper()
	before := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: 3, TownID: "t", SideQuests: []town.SideQuest{}, Projects: []town.Project{},
	})
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: before.Hash, DecisionEpoch: 3, Type: handoff.TalkToTownsfolk, ActorID: "ada", TownID: "t",
		Reason: "because", Args: map[string]string{"talkType": "casual"},
	})
	require.NoError(t, err)
	expected, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	return &application{pending: &pending{Attempt: attempt}, handoff: h, expected: expected}
}

func TestConclude(t *testing.T) {
	t.Parallel()
	policy := PluginPolicy{}.withDefaults()
	retryable, definite := &applyFailed{Reason: "R", Retryable: true}, &applyFailed{Reason: "D"}
	for name, v := range map[string]struct {
		attempt int64
		verdict verdict
		failed  *applyFailed
		again   bool
	}{
		"applied":                      {1, verdict{applied: true}, nil, false},
		"applied in the last attempt":  {3, verdict{applied: true}, nil, false},
		"refused for good":             {1, verdict{failed: definite}, definite, false},
		"refused at first":             {1, verdict{failed: retryable}, retryable, true},
		"refused in the last but one":  {2, verdict{failed: retryable}, retryable, true},
		"refused in the last attempt":  {3, verdict{failed: retryable}, retryable, false},
		"the policy was made stricter": {7, verdict{failed: retryable}, retryable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := anApplication(t, v.attempt)
			c := a.conclude(v.verdict, &policy)
			require.Equal(t, v.failed, c.failed)
			require.Equal(t, v.again, c.again)
			if v.failed == nil {
				require.Equal(t, a.expected, c.after)
			}
		})
	}
}

func TestReportedState(t *testing.T) {
	t.Parallel()
	state := func(day, townID string) string {
		return `{"schemaVersion":"snapshot.v1","day":` + day + `,"townId":"` + townID + `","mission":null,"sideQuests":[],
			"pressure":{"threat":0,"scarcity":0,"hope":0.5,"dread":0},"projects":[],"latestNetherEvent":null}`
	}
	for day, want := range map[string]int64{"0": 4, "3": 4, "4": 4, "5": 5, "900": 900} {
		c := anApplication(t, 1).conclude(verdict{applied: true, snapshot: []byte(state(day, "t"))}, &PluginPolicy{Attempts: 3})
		require.Nil(t, c.failed)
		require.Equal(t, want, c.after.Epoch(), "the town's day moves on, and never back")
		again, err := town.Parse(c.after.Canonical, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, again.Hash, c.after.Hash, "it has the hash of what it says")
		require.InDelta(t, 0.5, c.after.Snapshot.Pressure.Hope, 0)
	}
	for _, bad := range []string{`{}`, `null`, `[]`, state("-1", "t"), state("4", "other"), state("4", "t") + "x"} {
		c := anApplication(t, 3).conclude(verdict{applied: true, snapshot: []byte(bad)}, &PluginPolicy{Attempts: 3})
		require.NotNil(t, c.failed, bad)
		require.Equal(t, ReasonPluginStateInvalid, c.failed.Reason)
		require.False(t, c.again)
		require.True(t, anApplication(t, 1).conclude(verdict{applied: true, snapshot: []byte(bad)}, &PluginPolicy{Attempts: 3}).again)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	p := PluginPolicy{Backoff: time.Second}
	for attempt, want := range map[int64]time.Duration{1: 1, 2: 2, 3: 4, 6: 32, 7: 60, 1 << 40: 60} {
		require.Equal(t, want*time.Second, p.backoff(attempt), attempt)
	}
}

func TestNextAttempt(t *testing.T) {
	t.Parallel()
	policy := PluginPolicy{}.withDefaults()
	now := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	first := &pending{Attempt: 1, IDSeed: "seed", Emitted: 8}
	second := first.next(applyFailed{Reason: "R"}, true, now, &policy)
	third := second.next(applyFailed{Reason: "S"}, false, now, &policy)
	require.Equal(t, int64(2), second.Attempt)
	require.Equal(t, now.Add(time.Second), second.NotBefore)
	require.Equal(t, second.NotBefore.Add(policy.Deadline), second.Deadline)
	require.True(t, third.Reached, "an attempt that reached somebody is not forgotten")
	require.Equal(t, now.Add(2*time.Second), third.NotBefore)
	require.Equal(t, &applyFailed{Reason: "S"}, third.Last)
	require.Equal(t, int64(1), first.Attempt, "what is committed stays as it is")
	require.Equal(t, []any{"seed", int64(8)}, []any{third.IDSeed, third.Emitted})
}

func TestSilence(t *testing.T) {
	t.Parallel()
	require.Equal(t, ReasonPluginTimeout, silence(true, nil).Reason)
	require.Equal(t, ReasonPluginUnavailable, silence(false, nil).Reason)
	require.Contains(t, silence(true, errors.New("no JSON")).Message, "no JSON")
	require.True(t, silence(true, nil).Retryable)
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 2000)
	f := refusal(apply.Answer{ReasonCode: "X", Message: long, Retryable: true})
	require.Equal(t, ReasonPluginRejected, f.Reason)
	require.Equal(t, "X", f.Code)
	require.True(t, f.Retryable)
	require.True(t, utf8.ValidString(f.Message))
	require.LessOrEqual(t, len(f.Message), maxMessage+len("…"))
	require.NotEmpty(t, refusal(apply.Answer{ReasonCode: "X"}).Message)
}

func TestPolicyValidates(t *testing.T) {
	t.Parallel()
	for _, bad := range []PluginPolicy{{Deadline: -1}, {Attempts: -1}, {Backoff: -1}, {Resend: -1}} {
		filled := bad.withDefaults()
		require.Error(t, filled.validate())
	}
	filled := PluginPolicy{}.withDefaults()
	require.NoError(t, filled.validate())
}
