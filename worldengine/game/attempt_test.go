package game

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"worldengine/worldengine/apply"

	"github.com/nats-io/nats.go"
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
		40500ms nothing -> PLUGIN_TIMEOUT, reached`,
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
			p := &PluginAttempt{ApplyID: anApplyID, Number: 2, Until: start.Add(10 * time.Second),
				Resend: 2 * time.Second}
			if strings.HasPrefix(name, "a patient") {
				p.Patience = 10 * time.Second
			}
			for line := range strings.Lines(strings.TrimSpace(scenario)) {
				what, _, _ := strings.Cut(strings.TrimSpace(line), " -> ")
				at, event, _ := strings.Cut(what, " ")
				since, err := time.ParseDuration(at)
				require.NoError(t, err)
				action := happens(t, p, start.Add(since), event)
				fmt.Fprintf(&told, "\t\t%s -> %s\n", what, actionText(action, start))
			}
			require.Equal(t, "\n"+strings.TrimRight(told.String(), "\n"), scenario)
		})
	}
}

const anApplyID = "handoff_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// happens tells an attempt of an event.
func happens(t *testing.T, p *PluginAttempt, now time.Time, event string) Action {
	t.Helper()
	command := &apply.Command{ApplyID: anApplyID}
	number := p.Number
	if later, ok := strings.CutPrefix(event, "earlier "); ok {
		number, event = number-1, later
	}
	reply := func(a apply.Answer) Action {
		data, err := a.MarshalWire()
		require.NoError(t, err)
		return p.Replied(now, &nats.Msg{Data: data}, number)
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
		return p.Sent(now, nil)
	case "not sent":
		return p.Sent(now, errors.New("no connection"))
	case "nothing":
		return p.TimedOut(now)
	case "absent":
		return p.Replied(now, &nats.Msg{Header: nats.Header{"Status": {"503"}}}, number)
	case "garbage":
		return p.Replied(now, &nats.Msg{Data: []byte("{")}, number)
	case "applied":
		return reply(apply.Done(command))
	case "refused":
		return reply(apply.Refuse(command, "NO", "no", false))
	case "busy":
		return reply(apply.Later(command, apply.Busy, pause))
	}
	t.Fatalf("no such event: %q", event)
	return Action{}
}

func actionText(a Action, start time.Time) string {
	switch {
	case a.Over != nil && a.Over.Applied:
		return "applied"
	case a.Over != nil:
		text := string(a.Over.Failed.Reason)
		if a.Over.Reached {
			text += ", reached"
		}
		return text
	case a.Again:
		return "send again"
	case a.Send:
		return "send"
	}
	return "wait until " + a.Wait.Sub(start).String()
}

// If an earlier attempt's request may have reached a plugin, this attempt has reached it.
func TestPluginAttempt_Reached(t *testing.T) {
	t.Parallel()
	p := &PluginAttempt{Until: time.Unix(1, 0), Resend: time.Second, Earlier: true}
	require.Equal(t, apply.ReasonPluginTimeout, p.Due(time.Unix(1, 0)).Over.Failed.Reason)
}

// NATS's answer to an earlier attempt's request shows neither that a plugin has come since, nor
// that there is none.
func TestPluginAttempt_Sighting(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	none := &nats.Msg{Header: nats.Header{"Status": {"503"}}}
	p := &PluginAttempt{
		ApplyID: "a", Number: 2, Until: now.Add(time.Minute), Resend: time.Second,
		Patience: time.Second,
	}
	p.Sent(now, nil)
	sighting := func(msg *nats.Msg, attempt int64) [2]bool {
		p.Replied(now, msg, attempt)
		absent, known := p.Sighting(msg)
		return [2]bool{absent, known}
	}
	require.Equal(t, [2]bool{false, false}, sighting(none, 1))
	require.Equal(t, [2]bool{true, true}, sighting(none, 2))
	require.Equal(t, [2]bool{false, true}, sighting(&nats.Msg{Data: []byte("no answer")}, 1))
	p.Sent(now, nil)
	_, known := p.Sighting(nil)
	require.False(t, known)
}

// While no plugin is subscribed, a patient attempt waits, and another one passes.
func TestPluginAttempt_Waits(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{0, time.Second} {
		p := &PluginAttempt{Patience: patience}
		require.False(t, p.Away())
		require.False(t, p.Waits())
		p.absent = true
		require.True(t, p.Away())
		require.Equal(t, patience > 0, p.Waits())
	}
}
