package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func TestWatch(t *testing.T) {
	c := online(t)
	made := c.ok("new", threatened, "talk", "casual")
	require.Equal(t, exitOK, c.pipe(made, "send", "-").status)
	require.Equal(t, exitOK, c.pipe(made, "send", "-").status)

	lines := strings.Split(strings.TrimSpace(c.ok("watch", "--since", "1h", "--count", "17")), "\n")
	require.Len(t, lines, 17, "ten events of the executed one, seven of the duplicate")
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  town-threatened .* 1  RunStarted .* townsfolk talk town-threatened casual$`, lines[0])
	assert.Regexp(t, ` RunCompleted .* executed EXECUTED$`, lines[9])
	assert.Regexp(t, ` StepSkipped +apply +because of DUPLICATE_HANDOFF$`, lines[15])

	ends := strings.Split(strings.TrimSpace(
		c.ok("watch", "--since", "1h", "--type", "RunCompleted", "--town", threatened, "--count", "2", "-o", "json")), "\n")
	require.Len(t, ends, 2)
	for _, line := range ends {
		assert.Equal(t, runevents.RunCompleted, decode[runevents.Record](t, line).EventType)
	}
	run := decode[runevents.Record](t, ends[1]).RunID
	assert.Len(t, strings.Split(strings.TrimSpace(c.ok("watch", "--since", "1h", "--run", run, "--count", "7")), "\n"), 7)
	assert.Equal(t, exitUnavailable, c.run("watch", "--world", "nowhere").status)
}

// Ctrl-C ends it cleanly after what came.
func TestWatchEnds(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	ctx, cancel := context.WithCancel(t.Context())
	out := &signalled{cancel: cancel, after: 10}
	var errs strings.Builder
	status := run(ctx, []string{"--server", c.env["NATS_URL"], "watch", "--since", "1h"},
		strings.NewReader(""), out, &errs, func(string) (string, bool) { return "", false })
	assert.Equal(t, exitOK, status, errs.String())
	assert.Equal(t, 10, strings.Count(out.String(), "\n"))
}

// signalled is a terminal at which Ctrl-C is pressed after some lines.
type signalled struct {
	strings.Builder
	cancel context.CancelFunc
	after  int
}

func (s *signalled) Write(line []byte) (int, error) {
	if s.after--; s.after == 0 {
		s.cancel()
	}
	return s.Builder.Write(line)
}
