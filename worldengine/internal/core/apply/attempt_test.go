package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/phrase"
)

// Only a console that was not reached has not run the command; any other error is a doubt. A game's
// words are cut between two characters.
func TestResults(t *testing.T) {
	t.Parallel()
	command := &Command{ApplyID: "handoff_1"}
	unavailable, cut := fmt.Errorf("rcon: %w", ErrUnavailable), errors.New("rcon: cut off")
	again := errors.Join(unavailable, ErrInDoubt)
	for name, c := range map[string]struct {
		answer GameAnswer
		err    error
		want   AttemptResult
	}{
		"applied": {Done(command), nil, AttemptResult{Applied: true, MayHaveReached: true}},
		"refused": {Refuse(command, "NO", "no", true), nil, AttemptResult{MayHaveReached: true,
			Failure: &Failure{Reason: ReasonPluginRejected, Code: "NO", Message: "no",
				Retryable: true}}},
		"refused without a word": {Refuse(command, "NO", "", false), nil, AttemptResult{MayHaveReached: true,
			Failure: &Failure{Reason: ReasonPluginRejected, Code: "NO",
				Message: "The plugin refused the command."}}},
		"not reached": {GameAnswer{}, unavailable, AttemptResult{Failure: &Failure{
			Reason: ReasonGameUnavailable, Retryable: true, Message: phrase.Sentence(unavailable)}}},
		"no answer": {GameAnswer{}, cut, AttemptResult{MayHaveReached: true, Failure: &Failure{
			Reason: ReasonRCONInDoubt, Message: phrase.Sentence(cut)}}},
		"not reached again, in doubt before": {GameAnswer{}, again, AttemptResult{MayHaveReached: true,
			Failure: &Failure{Reason: ReasonRCONInDoubt, Message: phrase.Sentence(again)}}},
	} {
		require.Equal(t, c.want, ConsoleResult(c.answer, c.err), name)
		require.Equal(t, c.err != nil && !c.want.MayHaveReached, NotApplied(c.err), name)
	}
	require.Equal(t, ReasonPluginTimeout, NoAnswer(true, nil).Reason)
	require.Equal(t, ReasonGameUnavailable, NoAnswer(false, nil).Reason)
	require.Contains(t, NoAnswer(true, errors.New("no JSON")).Message, "no JSON")
	long := refusalFailure(GameAnswer{Message: "x" + strings.Repeat("é", MaxMessage)}).Message
	require.True(t, utf8.ValidString(long))
	require.Equal(t, MaxMessage-1+len("…"), len(long))
}

// An invalid artifact is counted, and the others are kept.
func TestArtifacts_Kept(t *testing.T) {
	t.Parallel()
	const good = `{"uri":"file:///world/1"}`
	long := `{"uri":"file:///` + strings.Repeat("a", maxArtifactSize) + `"}`
	many := good + strings.Repeat(","+good, maxArtifacts-1)
	for list, want := range map[string][2]int{ // those that are kept, and left out
		``:               {0, 0},
		`[]`:             {0, 0},
		good:             {0, 1}, // no list
		`[` + good + `]`: {1, 0},
		`[{"uri":"data:text/plain,hello"},` + good + `]`: {1, 1},
		`[{"kind":"log"},` + good + `]`:                  {1, 1},
		`[7,null,"file:///a",` + good + `]`:              {1, 3},
		`[{"uri":"file:///a","body":"x"}]`:               {0, 1},
		`[` + long + `,` + good + `]`:                    {1, 1},
		`[` + many + `]`:                                 {maxArtifacts, 0},
		`[` + many + `,` + good + `,` + good + `]`:       {maxArtifacts, 2},
	} {
		got := artifactsOf(jsontext.Value(list))
		require.Equal(t, want, [2]int{len(got.References), got.LeftOut}, list)
		for _, r := range got.References {
			require.JSONEq(t, good, string(r))
		}
	}
}

// The policy decides how long a command waits for a plugin; missing members are the defaults.
func TestPolicies(t *testing.T) {
	t.Parallel()
	defaults := RetryPolicy{}.WithDefaults()
	require.Equal(t, RetryPolicy{Deadline: 10 * time.Second, Attempts: 3, Backoff: time.Second,
		Resend: 2 * time.Second, Absence: AbsenceWait}, defaults)
	given := RetryPolicy{Deadline: 1, Attempts: 2, Backoff: 3, Resend: 4, Absence: AbsenceFail}
	require.Equal(t, given, given.WithDefaults())
	require.Equal(t, 10*time.Second, defaults.AbsenceGrace())
	require.Zero(t, given.AbsenceGrace())
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	p := RetryPolicy{Backoff: time.Second}
	for attempt, want := range map[int64]time.Duration{1: 1, 2: 2, 3: 4, 6: 32, 7: 60,
		1 << 40: 60} {
		require.Equal(t, want*time.Second, p.BackoffAfter(attempt), attempt)
	}
}

func TestNextAttempt(t *testing.T) {
	t.Parallel()
	policy := RetryPolicy{}.WithDefaults()
	now := time.Date(2026, 2, 16, 11, 0, 0, 0, time.FixedZone("", 3600))
	first := &Pending{Attempt: 1, Emitted: 8}
	second := first.NextAttempt(Failure{Reason: "R"}, true, now, &policy)
	third := second.NextAttempt(Failure{Reason: "S"}, false, now, &policy)
	require.Equal(t, int64(2), second.Attempt)
	require.Equal(t, now.Add(time.Second).UTC(), second.NotBefore)
	require.Equal(t, second.NotBefore.Add(policy.Deadline), second.Deadline)
	require.True(t, third.MayHaveReached, "an attempt that reached somebody is not forgotten")
	require.Equal(t, now.Add(2*time.Second).UTC(), third.NotBefore)
	require.Equal(t, &Failure{Reason: "S"}, third.LastFailure)
	require.Equal(t, int64(1), first.Attempt, "what is committed stays as it is")
	require.Equal(t, int64(8), third.Emitted)
}
