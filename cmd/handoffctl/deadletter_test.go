package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/wire"
)

func TestDeadLetters(t *testing.T) {
	c := online(t)
	assert.Equal(t, "there is no dead letter\n", c.ok("deadletter", "list"))
	assert.Equal(t, exitUsage, c.run("deadletter", "show", "1").status)
	js := c.streams()
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

// Letters whose cause is mended come onto the bus, and are not told any more; what cannot be made
// again stays.
func TestDeadLettersAreReplayed(t *testing.T) {
	c := onlineWith(t, worldengine.Config{DeliveryAttempts: 1})
	assert.Equal(t, "there is no dead letter\n", c.ok("deadletter", "replay", "--all"))
	for _, wrong := range [][]string{{}, {"1", "--all"}, {"x"}, {"1"}} {
		assert.Equal(t, exitUsage, c.run(append([]string{"deadletter", "replay"},
			wrong...)...).status, "%q", wrong)
	}
	js := c.streams()
	limit := func(most int32) {
		stream, err := js.Stream(t.Context(), wire.EventStream("main"))
		require.NoError(t, err)
		config := stream.CachedInfo().Config
		config.MaxMsgSize = most
		_, err = js.UpdateStream(t.Context(), config)
		require.NoError(t, err)
	}
	limit(100)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	list := func() []deadLetter {
		return decode[map[string][]deadLetter](t,
			c.ok("deadletter", "list", "-o", "json"))["letters"]
	}
	require.Eventually(t, func() bool { return len(list()) == 10 }, time.Minute,
		50*time.Millisecond)
	for part, subject := range []string{wire.LogSubject("main", "t"),
		wire.EventSubject("main", "t", "r")} {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: wire.DeadLetterSubject("main", wire.EventStream("main"), "9000",
				strconv.Itoa(part)),
			Header: nats.Header{wire.OriginalSubjectHeader: {subject}},
		})
		require.NoError(t, err)
	}
	limit(-1)
	type answer struct {
		Letters []letterReplay `json:"letters"`
	}
	got := c.run("deadletter", "replay", "--patience", "1s", "3", "11", "12", "-o", "json")
	require.Equal(t, exitFailed, got.status, got.err)
	assert.Contains(t, got.err, "2 of 3 dead letters stay")
	letters := decode[answer](t, got.out).Letters
	require.Len(t, letters, 3)
	assert.Equal(t, []any{true, "", 1}, []any{letters[0].Replayed, letters[0].Why,
		letters[0].AlertsAcknowledged})
	assert.Contains(t, letters[1].Why, "cannot be read")
	assert.Contains(t, letters[2].Why, "has left the log")
	assert.Len(t, list(), 11)

	got = c.run("deadletter", "replay", "--patience", "1s", "--all")
	assert.Equal(t, exitFailed, got.status, got.err)
	assert.Regexp(t, `(?m)^10 +yes +1 +-$`, got.out)
	assert.Regexp(t, `(?m)^11 +no +0 +it is a message of the log that cannot be read`, got.out)
	assert.Len(t, list(), 2)
	assert.Contains(t, c.ok("fsck"), "nothing is wrong")
	assert.Contains(t, c.run("status").out, "none open, and 10 acknowledged")
}

// What a role may not do is said at once, with the role that may.
func TestARightThatIsMissingIsNamed(t *testing.T) {
	as := guarded(t)
	for _, role := range []access.Role{access.Agent, access.Plugin, access.Observer} {
		c := as(role)
		for doing, command := range map[string][]string{
			"run fsck": {"fsck"}, "make a backup": {"backup", t.TempDir()},
			"look at dead letters": {"deadletter", "list"},
			"watch the past":       {"watch", "--since", "1h"},
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
