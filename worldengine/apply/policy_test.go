package apply

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

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
	now := time.Date(2026, 2, 16, 11, 0, 0, 0, time.FixedZone("", 3600))
	first := &Pending{Attempt: 1, Emitted: 8}
	second := first.Next(Failure{Reason: "R"}, true, now, &policy)
	third := second.Next(Failure{Reason: "S"}, false, now, &policy)
	require.Equal(t, int64(2), second.Attempt)
	require.Equal(t, now.Add(time.Second).UTC(), second.NotBefore)
	require.Equal(t, second.NotBefore.Add(policy.Deadline), second.Deadline)
	require.True(t, third.Reached, "an attempt that reached somebody is not forgotten")
	require.Equal(t, now.Add(2*time.Second).UTC(), third.NotBefore)
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
