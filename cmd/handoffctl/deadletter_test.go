package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/bus"
	"worldengine/worldengine/wire"
)

func TestDeadLetters_ListAndShow(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Bus: true})
	assert.Equal(t, "there is no dead letter\n", c.ok("deadletter", "list"))
	assert.Equal(t, exitUsage, c.run("deadletter", "show", "1").status)
	js := c.streams()
	_, err := js.CreateStream(t.Context(), bus.DeadLetterConfig("main", 1))
	require.NoError(t, err)
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

// Letters whose cause is mended come onto the bus, and their alerts are acknowledged; a letter whose
// event the log does not have stays.
func TestDeadLetters_Replay(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Bus: true, DeliveryAttempts: 1})
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
	count := func() int {
		return len(decode[map[string][]deadLetter](t,
			c.ok("deadletter", "list", "-o", "json"))["letters"])
	}
	limit(100)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	require.Eventually(t, func() bool { return count() == 10 }, time.Minute,
		50*time.Millisecond)
	gone := wire.DeadLetterSubject("main", wire.EventStream("main"), "9000", "0")
	_, err := js.Publish(t.Context(), gone, nil)
	require.NoError(t, err)
	limit(-1)

	got := c.run("deadletter", "replay", "3", "11", "-o", "json")
	require.Equal(t, exitFailed, got.status, got.err)
	assert.Contains(t, got.err, "1 of 2 dead letters stay")
	letters := decode[map[string][]letterReplay](t, got.out)["letters"]
	require.Len(t, letters, 2)
	assert.Equal(t, []any{uint64(3), true, 1}, []any{letters[0].Number, letters[0].Replayed,
		letters[0].AlertsAcknowledged})
	assert.Equal(t, letterReplay{Number: 11, Subject: gone}, letters[1])
	assert.Equal(t, 10, count())

	got = c.run("deadletter", "replay", "--all")
	assert.Equal(t, exitFailed, got.status, got.err)
	assert.Regexp(t, `(?m)^10 +yes +1$`, got.out)
	assert.Regexp(t, `(?m)^11 +no +0$`, got.out)
	assert.Equal(t, 1, count())
	status := c.run("status").out
	assert.Contains(t, status, "none open, and 10 acknowledged")
	assert.Regexp(t, `(?m)^bus +at \d+ of \d+$`, status)
}
