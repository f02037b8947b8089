package apply

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// anApplication is a pending command that takes a town from day 3 to day 4.
func anApplication(t *testing.T, attempt int64) *Decoded {
	t.Helper()
	before := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: 3, TownID: "t", SideQuests: []town.SideQuest{},
		Projects: []town.Project{},
	})
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: before.Hash, DecisionEpoch: 3, Type: handoff.TalkToTownsfolk,
		ActorID: "ada", TownID: "t",
		Reason: "because", Args: map[string]string{"talkType": "casual"},
	})
	require.NoError(t, err)
	expected, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	return &Decoded{Pending: &Pending{Attempt: attempt}, Handoff: h, Expected: expected}
}

func TestConclude(t *testing.T) {
	t.Parallel()
	policy := Policy{}.WithDefaults()
	retryable, definite := &Failure{Reason: "R", Retryable: true}, &Failure{Reason: "D"}
	for name, v := range map[string]struct {
		attempt int64
		verdict Result
		failed  *Failure
		again   bool
	}{
		"applied":                      {1, Result{Applied: true}, nil, false},
		"applied in the last attempt":  {3, Result{Applied: true}, nil, false},
		"refused for good":             {1, Result{Failed: definite}, definite, false},
		"refused at first":             {1, Result{Failed: retryable}, retryable, true},
		"refused in the last but one":  {2, Result{Failed: retryable}, retryable, true},
		"refused in the last attempt":  {3, Result{Failed: retryable}, retryable, false},
		"the policy was made stricter": {7, Result{Failed: retryable}, retryable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := anApplication(t, v.attempt)
			c := a.NextStep(v.verdict, &policy)
			require.Equal(t, v.failed, c.Failed)
			require.Equal(t, v.again, c.Again)
			if v.failed == nil {
				require.Equal(t, a.Expected, c.After)
			}
		})
	}
}

func TestReportedState(t *testing.T) {
	t.Parallel()
	state := func(day, townID string) string {
		return `{"schemaVersion":"snapshot.v1","day":` + day + `,"townId":"` + townID +
			`","mission":null,"sideQuests":[],
			"pressure":{"threat":0,"scarcity":0,"hope":0.5,"dread":0},"projects":[],"latestNetherEvent":null}`
	}
	for day, want := range map[string]int64{"0": 4, "3": 4, "4": 4, "5": 5, "900": 900} {
		c := anApplication(t, 1).NextStep(Result{Applied: true, Snapshot: []byte(state(day, "t"))},
			&Policy{Attempts: 3})
		require.Nil(t, c.Failed)
		require.Equal(t, want, c.After.Epoch(), "the town's day moves on, and never back")
		again, err := town.Parse(c.After.Canonical, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, again.Hash, c.After.Hash, "it has the hash of what it says")
		require.InDelta(t, 0.5, c.After.Snapshot.Pressure.Hope, 0)
	}
	for _, bad := range []string{`{}`, `null`, `[]`, state("-1", "t"), state("4", "other"),
		state("4", "t") + "x"} {
		c := anApplication(t, 3).NextStep(Result{Applied: true, Snapshot: []byte(bad)},
			&Policy{Attempts: 3})
		require.NotNil(t, c.Failed, bad)
		require.Equal(t, ReasonPluginStateInvalid, c.Failed.Reason)
		require.False(t, c.Again)
		require.True(t, anApplication(t, 1).NextStep(Result{Applied: true, Snapshot: []byte(bad)},
			&Policy{Attempts: 3}).Again)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	p := Policy{Backoff: time.Second}
	for attempt, want := range map[int64]time.Duration{1: 1, 2: 2, 3: 4, 6: 32, 7: 60,
		1 << 40: 60} {
		require.Equal(t, want*time.Second, p.PauseAfter(attempt), attempt)
	}
}

func TestNextAttempt(t *testing.T) {
	t.Parallel()
	policy := Policy{}.WithDefaults()
	now := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	first := &Pending{Attempt: 1, Emitted: 8}
	second := first.Next(Failure{Reason: "R"}, true, now, &policy)
	third := second.Next(Failure{Reason: "S"}, false, now, &policy)
	require.Equal(t, int64(2), second.Attempt)
	require.Equal(t, now.Add(time.Second), second.NotBefore)
	require.Equal(t, second.NotBefore.Add(policy.Deadline), second.Deadline)
	require.True(t, third.Reached, "an attempt that reached somebody is not forgotten")
	require.Equal(t, now.Add(2*time.Second), third.NotBefore)
	require.Equal(t, &Failure{Reason: "S"}, third.Last)
	require.Equal(t, int64(1), first.Attempt, "what is committed stays as it is")
	require.Equal(t, int64(8), third.Emitted)
}

func TestSilence(t *testing.T) {
	t.Parallel()
	require.Equal(t, ReasonPluginTimeout, Silence(true, nil).Reason)
	require.Equal(t, ReasonPluginUnavailable, Silence(false, nil).Reason)
	require.Contains(t, Silence(true, errors.New("no JSON")).Message, "no JSON")
	require.True(t, Silence(true, nil).Retryable)
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 2000)
	f := Refusal(Answer{ReasonCode: "X", Message: long, Retryable: true})
	require.Equal(t, ReasonPluginRejected, f.Reason)
	require.Equal(t, "X", f.Code)
	require.True(t, f.Retryable)
	require.True(t, utf8.ValidString(f.Message))
	require.LessOrEqual(t, len(f.Message), MaxMessage+len("…"))
	require.NotEmpty(t, Refusal(Answer{ReasonCode: "X"}).Message)
}

func TestPolicy_Validate(t *testing.T) {
	t.Parallel()
	for _, bad := range []Policy{{Deadline: -1}, {Attempts: -1}, {Backoff: -1}, {Resend: -1}} {
		filled := bad.WithDefaults()
		require.Error(t, filled.Validate())
	}
	filled := Policy{}.WithDefaults()
	require.NoError(t, filled.Validate())
}
