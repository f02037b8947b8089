package server_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// A client that signs in as early as it can has what it subscribed to: live messages cross from
// the world's account into that of the clients before anybody is let in.
func TestClientsThatWaitForTheServer(t *testing.T) {
	t.Parallel()
	address, data := natstest.FreeAddress(t), t.TempDir()
	at := func(config *server.Config) { config.Listen, config.Data = address, data }
	fill(t, "large", 8<<20, at) // so that there is something to recover before they are let in
	var clients []*nats.Conn
	var early []*nats.Subscription
	for range 24 {
		nc, err := nats.Connect("nats://"+address, nats.RetryOnFailedConnect(true),
			nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond),
			nats.ReconnectJitter(0, 0))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		sub, err := nc.SubscribeSync(wire.EventsSubject("main", "*"))
		require.NoError(t, err)
		clients, early = append(clients, nc), append(early, sub)
	}
	c := connect(t, start(t, at))
	town := c.put(snapshot("t"), "")
	for i, nc := range clients { // the server has their subscriptions
		require.Eventually(t, nc.IsConnected, time.Minute, time.Millisecond, "client %d", i)
		require.NoError(t, nc.FlushTimeout(time.Minute), "client %d", i)
	}
	c.send(marshalled(t, propose(town, handoff.TalkToTownsfolk, "casual")))
	for i, sub := range early {
		for commit := (messages.Commit{}); commit.Cause != "handoff"; {
			msg, err := sub.NextMsg(20 * time.Second)
			require.NoError(t, err, "subscriber %d", i)
			commit = commitOf(t, string(msg.Data))
		}
	}
}
