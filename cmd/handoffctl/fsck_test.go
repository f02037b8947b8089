package main

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
)

func TestFsckCommand(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	text := c.ok("fsck")
	assert.Contains(t, text, "1 accepted, 0 refused, 0 given away to be applied, 0 further attempts, 0 pauses")
	assert.Contains(t, text, "nothing is wrong")

	nc, err := nats.Connect(c.env["NATS_URL"])
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	receipts, err := js.Stream(t.Context(), dedupe.StreamName("main"))
	require.NoError(t, err)
	require.NoError(t, receipts.DeleteMsg(t.Context(), 1))

	got := c.run("fsck", "--patience", "1s")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^1 findings$`, got.out)
	assert.Contains(t, got.out, dedupe.StreamName("main"))
	text = c.ok("fsck", "--patience", "1s", "--repair")
	assert.Contains(t, text, "repaired: ")
	assert.Contains(t, c.ok("fsck"), "nothing is wrong")
	assert.Equal(t, exitUnavailable, c.run("fsck", "--world", "nowhere").status)
}
