package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// A console that did not run the command may be asked again; one that may have run it must not be,
// since it would apply the command twice.
func TestConsoleResult(t *testing.T) {
	t.Parallel()
	command := &Command{ApplyID: "handoff_1"}
	unavailable := fmt.Errorf("rcon: %w", ErrUnavailable)
	for name, c := range map[string]struct {
		answer Answer
		err    error
		want   Result
	}{
		"applied": {Done(command), nil, Result{Applied: true, Reached: true}},
		"refused": {Refuse(command, "NO", "no", true), nil, Result{Reached: true,
			Failed: &Failure{Reason: ReasonPluginRejected, Code: "NO", Message: "no",
				Retryable: true}}},
		"not reached": {Answer{}, unavailable, Result{Failed: &Failure{
			Reason: ReasonPluginUnavailable, Retryable: true}}},
		"no answer": {Answer{}, errors.New("rcon: cut off"), Result{Reached: true,
			Failed: &Failure{Reason: ReasonRCONInDoubt}}},
		"not reached again, after what may have been": {Answer{},
			errors.Join(unavailable, ErrInDoubt), Result{Reached: true, Failed: &Failure{
				Reason: ReasonRCONInDoubt}}},
	} {
		got := ConsoleResult(c.answer, c.err)
		if c.err != nil {
			require.NotNil(t, got.Failed, name)
			c.want.Failed.Message = wire.Sentence(c.err)
		}
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.err != nil && !c.want.Reached, NotApplied(c.err), name)
	}
	long := InDoubt(strings.Repeat("é", MaxMessage))
	require.LessOrEqual(t, len(long.Failed.Message), MaxMessage+len("…"))
}

// The policy decides how long a command waits for a plugin; missing members are the defaults.
func TestPolicies(t *testing.T) {
	t.Parallel()
	defaults := Policy{}.WithDefaults()
	require.Equal(t, Policy{Deadline: 10 * time.Second, Attempts: 3, Backoff: time.Second,
		Resend: 2 * time.Second, Absent: AbsentWait}, defaults)
	given := Policy{Deadline: 1, Attempts: 2, Backoff: 3, Resend: 4, Absent: AbsentFail}
	require.Equal(t, given, given.WithDefaults())
	require.Equal(t, 10*time.Second, defaults.Patience())
	require.Zero(t, given.Patience())
	for name, change := range map[string]func(*Policy){
		"deadline": func(p *Policy) { p.Deadline = -1 },
		"attempts": func(p *Policy) { p.Attempts = 0 },
		"backoff":  func(p *Policy) { p.Backoff = -1 },
		"resend":   func(p *Policy) { p.Resend = -1 },
		"absent":   func(p *Policy) { p.Absent = "hope" },
	} {
		bad := defaults
		change(&bad)
		require.Error(t, bad.Validate(), name)
	}
	require.NoError(t, defaults.Validate())
	require.NoError(t, given.Validate())
}
