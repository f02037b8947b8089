package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attemptScenarios are attempts of 10 s whose request is sent again after 2 s. A line has a time,
// an event and the next action; "was" is the knowledge of earlier requests.
var attemptScenarios = map[string]string{
	"the plugin applies the command": `
		0s due -> send
		0s sent -> wait until 2s
		1s applied -> applied`,
	"silence is asked again, until the attempt ends": `
		0s due -> send
		0s sent -> wait until 2s
		2s nothing -> send again
		2s sent -> wait until 4s
		9s nothing -> send again
		9s sent -> wait until 10s
		10s nothing -> PLUGIN_TIMEOUT, reached`,
	"no plugin is subscribed: it is not reached": `
		0s due -> send
		0s sent -> wait until 2s
		0s absent -> wait until 250ms
		250ms nothing -> send again
		250ms sent -> wait until 2.25s
		300ms absent -> wait until 550ms
		10s nothing -> PLUGIN_UNAVAILABLE`,
	"no request leaves too late to hear that no plugin is subscribed": `
		0s due -> send
		0s sent -> wait until 2s
		0s absent -> wait until 250ms
		9s nothing -> send again
		9s sent -> wait until 10s
		9s absent -> wait until 10s
		10s nothing -> PLUGIN_UNAVAILABLE`,
	"a plugin that appears is reached": `
		0s due -> send
		0s sent -> wait until 2s
		0s absent -> wait until 250ms
		250ms nothing -> send again
		250ms sent -> wait until 2.25s
		2250ms nothing -> send again
		2250ms sent -> wait until 4.25s
		2300ms absent -> wait until 2.55s
		10s nothing -> PLUGIN_TIMEOUT, reached`,
	"a busy plugin is asked when it wants to be": `
		0s due -> send
		0s sent -> wait until 2s
		1s busy -> wait until 1.5s
		1500ms nothing -> send again
		1500ms sent -> wait until 3.5s
		2s busy for 3s -> wait until 5s
		5s nothing -> send again
		5s sent -> wait until 7s
		6s refused -> PLUGIN_REJECTED, reached`,
	"a wish never reaches beyond the end": `
		0s due -> send
		0s sent -> wait until 2s
		1s busy for 1h -> wait until 10s`,
	"only that it was applied counts of an earlier attempt": `
		0s due -> send
		0s sent -> wait until 2s
		1s earlier refused -> wait until 2s
		1s earlier busy -> wait until 2s
		1s earlier applied -> applied`,
	"an answer that cannot be read is trouble, and the plugin was reached": `
		0s due -> send
		0s sent -> wait until 2s
		1s garbage -> wait until 3s
		10s nothing -> PLUGIN_TIMEOUT, reached`,
	"a request that could not be sent": `
		0s due -> send
		0s not sent -> wait until 2s
		1s absent -> wait until 1.25s
		10s nothing -> PLUGIN_UNAVAILABLE`,
	"a patient attempt lasts from when the plugin comes": `
		0s due -> send
		0s sent -> wait until 2s
		0s absent -> wait until 250ms
		250ms nothing -> send again
		250ms sent -> wait until 2.25s
		30s absent -> wait until 30.5s
		31s nothing -> send again
		31s sent -> wait until 33s
		33s nothing -> send again
		33s sent -> wait until 35s
		41s nothing -> PLUGIN_TIMEOUT, reached`,
	"a patient attempt asks less often while the plugin is away": `
		0s due -> send
		0s sent -> wait until 2s
		0s absent -> wait until 250ms
		250ms nothing -> send again
		250ms sent -> wait until 2.25s
		250ms absent -> wait until 750ms
		750ms nothing -> send again
		750ms sent -> wait until 2.75s
		1s absent -> wait until 2s
		2s nothing -> send again
		2s sent -> wait until 4s
		2s absent -> wait until 4s
		4s sent -> wait until 6s
		4s absent -> wait until 6s
		6s sent -> wait until 8s
		6s busy -> wait until 6.5s
		7s sent -> wait until 9s
		7s absent -> wait until 7.25s`,
	"a patient attempt goes on after the server was suspended": `
		0s due -> send
		0s sent -> wait until 2s
		0s absent -> wait until 250ms
		40s nothing -> send again
		40s sent -> wait until 42s
		49s nothing -> send again
		49s sent -> wait until 50s
		50s nothing -> PLUGIN_TIMEOUT, reached`,
	"the attempt is over before it began": `
		10s due -> PLUGIN_UNAVAILABLE`,
}

func TestPluginAttempt_Scenarios(t *testing.T) {
	t.Parallel()
	for name, scenario := range attemptScenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told strings.Builder
			start := time.Unix(0, 0)
			p := &PluginAttempt{applyID: anApplyID, number: 2, deadline: start.Add(10 * time.Second),
				resend: 2 * time.Second}
			if strings.HasPrefix(name, "a patient") {
				p.grace = 10 * time.Second
			}
			for line := range strings.Lines(strings.TrimSpace(scenario)) {
				what, _, _ := strings.Cut(strings.TrimSpace(line), " -> ")
				at, event, _ := strings.Cut(what, " ")
				since, err := time.ParseDuration(at)
				require.NoError(t, err)
				next := happens(t, p, start.Add(since), event)
				fmt.Fprintf(&told, "\t\t%s -> %s\n", what, actionText(p, next, start))
			}
			require.Equal(t, "\n"+strings.TrimRight(told.String(), "\n"), scenario)
		})
	}
}

const anApplyID = "handoff_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// happens tells an attempt of an event.
func happens(t *testing.T, p *PluginAttempt, now time.Time, event string) PluginAction {
	t.Helper()
	command := &Command{ApplyID: anApplyID}
	number := p.number
	if later, ok := strings.CutPrefix(event, "earlier "); ok {
		number, event = number-1, later
	}
	reply := func(a GameAnswer) PluginAction {
		data, err := a.MarshalWire()
		require.NoError(t, err)
		return p.Replied(now, data, number)
	}
	pause := time.Duration(0)
	if busy, after, ok := strings.Cut(event, " for "); ok {
		var err error
		pause, err = time.ParseDuration(after)
		require.NoError(t, err)
		event = busy
	}
	switch event {
	case "due":
		return p.Due(now)
	case "sent":
		return p.Requested(now, nil)
	case "not sent":
		return p.Requested(now, errors.New("no connection"))
	case "nothing":
		return p.TimedOut(now)
	case "absent":
		return p.NoResponders(now, number)
	case "garbage":
		return p.Replied(now, []byte("{"), number)
	case "applied":
		return reply(Done(command))
	case "refused":
		return reply(Refuse(command, "NO", "no", false))
	case "busy":
		return reply(Later(command, Busy, pause))
	}
	t.Fatalf("no such event: %q", event)
	return PluginAction{}
}

func actionText(p *PluginAttempt, a PluginAction, start time.Time) string {
	switch {
	case a.Over != nil && a.Over.Applied:
		return "applied"
	case a.Over != nil:
		text := string(a.Over.Failure.Reason)
		if a.Over.MayHaveReached {
			text += ", reached"
		}
		return text
	case a.Send && p.sent:
		return "send again"
	case a.Send:
		return "send"
	}
	return "wait until " + a.Wait.Sub(start).String()
}

// NATS's answer to an earlier attempt's request does not show that a plugin is absent.
func TestPluginAttempt_Absent(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	p := &PluginAttempt{
		applyID: "a", number: 2, deadline: now.Add(time.Minute), resend: time.Second,
		grace: time.Second,
	}
	p.Requested(now, nil)
	for _, step := range []struct {
		attempt  int64
		noPlugin bool
	}{{1, false}, {2, true}, {1, true}} {
		p.NoResponders(now, step.attempt)
		require.Equal(t, step.noPlugin, p.noPlugin)
	}
	p.Replied(now, []byte("no answer"), 1)
	require.False(t, p.noPlugin)
}

// A request may have arrived if it was silent, had any answer, or its reach is unknown at the
// attempt's end.
func TestPluginAttempt_Arrival(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempt      PluginAttempt
		during, over Reach
	}{
		"absent":    {PluginAttempt{noPlugin: true}, Unreached, Unreached},
		"not known": {PluginAttempt{}, ReachUnknown, MayHaveReached},
		"silent, absent": {PluginAttempt{noPlugin: true, reached: true}, MayHaveReached,
			MayHaveReached},
		"busy": {PluginAttempt{busy: true, reached: true}, MayHaveReached,
			MayHaveReached},
	} {
		c.attempt.sent = true
		require.Equal(t, c.during, c.attempt.Reach(false), name)
		require.Equal(t, c.over, c.attempt.Reach(true), name)
	}
}
