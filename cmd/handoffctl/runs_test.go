package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestRunList_NoneAmongMany(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := &app{flags: &globalFlags{}, out: &out}
	require.NoError(t, a.printText(func(t table) {
		a.writeRuns(t, &messages.Runs{Next: 7, Searched: 2, SearchedTo: "2026-02-16T10:00:00.000Z"})
	}))
	assert.Equal(t, "none among the 2 runs up to 2026-02-16T10:00:00.000Z: --after 7 goes on\n",
		out.String())
}

// Each command takes the beginning of a run's id, if no other run has it.
func TestRunID_Short(t *testing.T) {
	c := online(t)
	made := c.handoff()
	sent := c.send(made)
	brief := sent.RunID[:8]
	assert.Contains(t, c.ok("run", "get", brief), sent.RunID)
	assert.Contains(t, c.ok("run", "events", brief, "-o", "json"), sent.RunID)
	assert.Contains(t, c.ok("watch", "--since", "1h", "--count", "1", "--run", brief), sent.RunID)
	assert.Contains(t, c.ok("record", "--run", brief), `"status":"executed"`)

	for range 17 { // two of so many ids begin with the same character, of sixteen
		c.pipe(made, "send", "-")
	}
	ids := []string{}
	for _, line := range strings.Split(strings.TrimSpace(c.ok("run", "list")), "\n")[1:] {
		ids = append(ids, strings.Fields(line)[0])
	}
	require.Len(t, ids, 18)
	first := map[string]int{}
	ambiguous := ""
	for _, id := range ids {
		if first[id[:1]]++; first[id[:1]] > 1 {
			ambiguous = id[:1]
		}
	}
	require.NotEmpty(t, ambiguous)
	for _, command := range [][]string{
		{"run", "get"}, {"run", "events"}, {"run", "cancel"}, {"watch", "--run"},
		{"record", "--run"},
	} {
		got := c.run(append(command, ambiguous)...)
		assert.Equal(t, exitUsage, got.status, command)
		assert.Regexp(t, `^handoffctl: \d+ runs have an id that begins with `+ambiguous+
			`, such as `+ambiguous+
			`\S+ and `+ambiguous+`\S+: give more of it\n$`, got.err, command)
	}
	c.fails(exitRefused, "UNKNOWN_RUN (404)", "run", "get", "zz")
}

// Of a world of more runs than are looked at, a short text may be the whole id of an older run.
func TestRunID_ManyRuns(t *testing.T) {
	c := faked(t, map[string]string{})
	nc := c.connect()
	answer := func(verb wire.Verb, with func(asked string) string) {
		_, err := nc.Subscribe(wire.Subject("main", verb), func(request *nats.Msg) {
			body := with(string(request.Data))
			reply := &nats.Msg{Data: []byte(body), Header: nats.Header{}}
			if strings.HasPrefix(body, `{"error"`) {
				reply.Header.Set(wire.ErrorCodeHeader, "404")
			}
			_ = request.RespondMsg(reply)
		})
		require.NoError(t, err)
	}
	const match = "abcdef00-0000-4000-8000-000000000000"
	answer(wire.RunList, func(asked string) string {
		runs := ""
		if strings.Contains(asked, `"id":"abc`) && !strings.Contains(asked, "after") {
			runs = `{"runId":"` + match + `"}`
		}
		return `{"next":7,"searched":2000,"runs":[` + runs + `]}`
	})
	answer(wire.RunGet, func(asked string) string {
		if strings.Contains(asked, `"abc"`) || strings.Contains(asked, match) {
			return strings.Replace(asked, "{", `{"status":"PENDING",`, 1)
		}
		return `{"error":{"code":"UNKNOWN_RUN","message":"There is none.","details":[]}}`
	})
	cancelled := make(chan string, 8)
	answer(wire.RunCancel, func(asked string) string { cancelled <- asked; return `{}` })
	require.NoError(t, nc.Flush())

	assert.Regexp(t, `(?m)^run +abc$`, c.ok("run", "get", "abc"),
		"an older run has the text for an id")
	assert.Regexp(t, `(?m)^run +`+match+`$`, c.ok("run", "get", "abcd"))
	c.fails(exitUsage, "none of the newest 10000 runs has an id that begins with zz: "+
		"give the whole id", "run", "get", "zz")
	c.fails(exitUsage, "only the newest 10000 runs were looked at: give the whole id", "run", "cancel", "abcd")
	assert.Empty(t, cancelled)
	c.ok("run", "cancel", "abc")
	assert.Contains(t, <-cancelled, `"runId":"abc"`)
	c.ok("run", "cancel", "abc", "--force")
	assert.Contains(t, <-cancelled, `"force":true`)
}
