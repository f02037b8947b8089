package bench

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"worldengine/handoff"
)

func TestPercentilesAreNearestRank(t *testing.T) {
	t.Parallel()
	var latencies []time.Duration
	for i := range 200 {
		latencies = append(latencies, time.Duration(200-i)*time.Millisecond)
	}
	got := rateOf(latencies, 4*time.Second)
	assert.Equal(t, Rate{Count: 200, PerSecond: 50, P50: 100, P90: 180, P99: 198, Max: 200}, got)
	one := rateOf([]time.Duration{time.Millisecond}, time.Second)
	assert.Equal(t, Rate{Count: 1, PerSecond: 1, P50: 1, P90: 1, P99: 1, Max: 1}, one)
	assert.Equal(t, Rate{}, rateOf(nil, time.Second))
}

func TestReportOfAPhase(t *testing.T) {
	t.Parallel()
	r := newReport(&Config{Mix: Mix{handoff.Executed: 1}})
	r.Echo = Rate{PerSecond: 100}
	workers := []*worker{
		{counts: map[handoff.Status]int{handoff.Executed: 8}, pause: time.Second, wrong: 1,
			examples: []string{"a"}},
		{counts: map[handoff.Status]int{handoff.Executed: 2, handoff.Stale: 4}, retries: 3},
	}
	r.addHandoffs(&phase{latencies: make([]time.Duration, 14), elapsed: 2 * time.Second,
		cpu: 28 * time.Millisecond}, workers)
	assert.Equal(t, 5.0, r.Executed)
	assert.Equal(t, 0.05, r.Ratio)
	assert.Equal(t, 7.0, r.Handoffs.PerSecond)
	assert.Equal(t, 2000.0, r.CPUMicros)
	assert.Equal(t, 0.25, r.PauseShare)
	assert.Equal(t, 3, r.Retries)
	assert.Equal(t, 1, r.Wrong)
	for range 2 * maxExamples {
		r.blame("b")
	}
	assert.Equal(t, 1+2*maxExamples, r.Wrong)
	assert.Len(t, r.Examples, maxExamples)
}

func TestReportSaysWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	r := newReport(&Config{})
	r.Followers = []Lag{{Stream: "S", Behind: 7, CaughtUpMs: -1}}
	r.FollowersUnknown = "no permission"
	r.Rate, r.Projections = 12.5, &Projections{Samples: 3, LagP50: 4, LagMax: 50, BehindMax: 60}
	r.blame("town x: something")
	var text bytes.Buffer
	assert.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(), "S: 7 log messages behind at the end, not caught up after "+
		"15s\n")
	assert.Contains(t, text.String(), "followers    unknown: no permission\n")
	assert.Contains(t, text.String(), "\n12.5 handoffs a second are offered; ")
	assert.Contains(t, text.String(), "\nprojections  4 ms behind, at most 50 ms and 60 run "+
		"events\n")
	assert.Contains(t, text.String(), "wrong        1\n             town x: something\n")
	assert.ErrorIs(t, r.WriteText(broken{}), errBroken)
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	good := Config{
		Towns: 2, Concurrency: 2, Connections: 1, Duration: time.Second, Timeout: time.Second,
		Mix: Mix{handoff.Executed: 1},
	}
	assert.NoError(t, good.Validate())
	for wants, change := range map[string]func(*Config){
		"towns must be at least 1":         func(c *Config) { c.Towns = 0 },
		"phases must be at least 0":        func(c *Config) { c.Phases = -1 },
		"concurrency must be at least 1":   func(c *Config) { c.Concurrency = 0 },
		"connections must be at least 1":   func(c *Config) { c.Connections = 0 },
		"a concurrency of 3 needs as many": func(c *Config) { c.Concurrency = 3 },
		"the duration must be":             func(c *Config) { c.Duration = time.Millisecond },
		"the rate must be 0 or make":       func(c *Config) { c.Rate = -1 },
		"make a handoff within":            func(c *Config) { c.Rate = 0.5 },
		"the mix is empty":                 func(c *Config) { c.Mix = Mix{} },
	} {
		bad := good
		change(&bad)
		assert.ErrorContains(t, bad.Validate(), wants)
	}
}
