package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// BenchmarkFloor is BenchmarkExecute with a responder in the place of the server: it judges
// nothing, and has NATS do the least for a handoff: store a commit under its guard, answer, and
// publish a live message. All bytes are those of a handoff that a server executed. The server's own
// is the rest of BenchmarkExecute, with the index and the reading of handoffs.
func BenchmarkFloor(b *testing.B) {
	m := messagesOfAHandoff(b)
	ns := natstest.Run(b, &natsserver.Options{
		Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: b.TempDir(),
		MaxPayload: 8 << 20, MaxPending: 128 << 20, NoFastProducerStall: true,
		SyncInterval: server.DefaultSyncInterval,
	})
	own, err := nats.Connect("", nats.InProcessServer(ns))
	require.NoError(b, err)
	b.Cleanup(own.Close)
	js, err := jetstream.New(own)
	require.NoError(b, err)
	_, err = js.CreateStream(b.Context(), m.stream)
	require.NoError(b, err)
	requests := make(chan *nats.Msg, crowdTowns) // not closed: the process ends
	for i := range crowdTowns {
		go m.answerAll(js, requests, i)
	}
	_, err = own.ChanSubscribe("floor", requests)
	require.NoError(b, err)
	nc, err := nats.Connect(ns.ClientURL())
	require.NoError(b, err)
	b.Cleanup(nc.Close)
	newCrowd().drive(b, nc, "floor")
}

// handoffMessages are the messages of one handoff.
type handoffMessages struct {
	stream       jetstream.StreamConfig // of the log
	commit       *jetstream.RawStreamMsg
	answer, live *nats.Msg
}

// messagesOfAHandoff returns the messages of a handoff that a server executed.
func messagesOfAHandoff(b *testing.B) *handoffMessages {
	srv := start(b, open)
	c, nc := newCrowd(), connect(b, srv).nc
	_, err := srv.Engine().Put(b.Context(), c.states[0], "")
	require.NoError(b, err)
	live, err := nc.SubscribeSync(wire.EventsSubject("main", "*"))
	require.NoError(b, err)
	require.NoError(b, nc.Flush())
	h, err := c.next(0)
	require.NoError(b, err)
	encoded, err := h.MarshalWire()
	require.NoError(b, err)
	m := &handoffMessages{}
	m.answer, err = nc.Request(wire.Subject("main", "handoff"), encoded, 10*time.Second)
	require.NoError(b, err)
	for commit := (messages.Commit{}); commit.Cause != "handoff"; {
		m.live, err = live.NextMsg(10 * time.Second)
		require.NoError(b, err)
		require.NoError(b, json.Unmarshal(m.live.Data, &commit))
	}
	js, err := jetstream.New(nc)
	require.NoError(b, err)
	log, err := js.Stream(b.Context(), wire.LogStream("main"))
	require.NoError(b, err)
	m.stream = log.CachedInfo().Config
	m.commit, err = log.GetMsg(b.Context(), 2)
	require.NoError(b, err)
	for _, added := range []string{"Stream", "Sequence", "Time-Stamp", "Subject"} {
		m.commit.Header.Del("Nats-" + added)
	}
	return m
}

// answerAll commits for one of the towns, answers, and publishes.
func (m *handoffMessages) answerAll(js jetstream.JetStream, requests <-chan *nats.Msg, town int) {
	token, last := fmt.Sprintf("town-%d", town), uint64(0)
	for request := range requests {
		commit := &nats.Msg{
			Subject: wire.LogSubject("main", token), Data: m.commit.Data,
			Header: maps.Clone(m.commit.Header),
		}
		commit.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
		ack, err := js.PublishMsg(context.Background(), commit)
		if err != nil {
			panic(err)
		}
		last = ack.Sequence
		answer := &nats.Msg{Data: m.answer.Data, Header: m.answer.Header}
		if err := request.RespondMsg(answer); err != nil {
			panic(err)
		}
		if err := js.Conn().Publish(wire.EventsSubject("main", token), m.live.Data); err != nil {
			panic(err)
		}
	}
}
