package main

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/wire"
)

func TestDeadLetters(t *testing.T) {
	c := online(t)
	assert.Equal(t, "there is no dead letter\n", c.ok("deadletter", "list"))
	assert.Equal(t, exitUsage, c.run("deadletter", "show", "1").status)
	js := c.letters()
	for part, body := range []string{`{"a": 1}`, "\x00\xff"} {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: wire.DeadLetterSubject("main", "WORLD_main_RUNEVENTS", "7",
				string(rune('0'+part))), Data: []byte(body),
			Header: nats.Header{
				wire.LogSeqHeader: {"7"}, wire.LogPartHeader: {string(rune('0' + part))},
				wire.DeadLetterReasonHeader: {"it is too large"},
				wire.OriginalSubjectHeader:  {"runevents.v2.main.x.y"},
				wire.OriginalSizeHeader:     {"9000000"},
			},
		})
		require.NoError(t, err)
	}
	table := c.ok("deadletter", "list")
	assert.Regexp(t, `(?m)^1 +\S+Z +WORLD_main_RUNEVENTS +7 +0 +it is too large$`, table)
	assert.Regexp(t, `(?m)^2 +\S+Z +WORLD_main_RUNEVENTS +7 +1 +it is too large$`, table)
	assert.Len(t, decode[map[string][]deadLetter](t,
		c.ok("deadletter", "list", "-o", "json"))["letters"], 2)
	text := c.ok("deadletter", "show", "1")
	assert.Regexp(t, `(?m)^log +sequence 7, part 0$`, text)
	assert.Regexp(t, `(?m)^subject +runevents\.v2\.main\.x\.y$`, text)
	assert.Regexp(t, `(?m)^size +9000000 bytes`, text)
	assert.Regexp(t, `(?m)^body +\{"a": 1\}$`, text)
	assert.Equal(t, "\x00\xff", c.ok("deadletter", "show", "2", "-o", "raw"))
	assert.Equal(t, `"\u0000�"`,
		string(decode[deadLetter](t, c.ok("deadletter", "show", "2", "-o", "json")).Body))
	assert.Equal(t, exitUsage, c.run("deadletter", "show", "3").status)
	assert.Equal(t, exitUnavailable, c.run("deadletter", "list", "--world", "nowhere").status)
}

// What a role may not do is said at once, with the role that may.
func TestARightThatIsMissingIsNamed(t *testing.T) {
	as := guarded(t)
	for _, role := range []access.Role{access.Agent, access.Plugin, access.Observer} {
		c := as(role)
		for doing, command := range map[string][]string{
			"run fsck": {"fsck"}, "make a backup": {"backup", t.TempDir()},
			"look at dead letters": {"deadletter", "list"},
			"watch the past":       {"watch", "--alerts", "--since", "1h"},
		} {
			got := c.run(command...)
			assert.Equal(t, exitUnavailable, got.status, "%s: %s", role, doing)
			assert.Equal(t, "handoffctl: PERMISSION_DENIED: the user "+string(role)+" may not "+
				doing+": that reads the "+
				"streams of the world, which takes the role operator, and it has the role "+
				string(role)+"\n", got.err)
		}
	}
}
