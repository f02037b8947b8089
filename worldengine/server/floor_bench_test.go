package server_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// BenchmarkFloor is BenchmarkExecute with a responder in the place of the server: it judges and
// writes nothing, and has NATS do what no server with these streams can do without: store a commit
// under its guard, answer, and store ten run events under theirs. All bytes are those
// of a handoff that a server executed. What BenchmarkExecute takes beyond it is the server's own,
// with the look-up of the key and the reading of the log.
func BenchmarkFloor(b *testing.B) {
	m := messagesOfAHandoff(b)
	ns := natstest.Run(b, &natsserver.Options{
		Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: b.TempDir(),
		MaxPayload: 8 << 20, MaxPending: 128 << 20, NoFastProducerStall: true,
		SyncInterval: server.DefaultSyncInterval,
	})
	f := &floor{b: b, messages: m, jobs: make(chan stored, 1<<16)}
	f.commits = f.connection(ns)
	for _, config := range m.streams {
		_, err := f.commits.CreateStream(b.Context(), config)
		require.NoError(b, err)
	}
	requests := make(chan *nats.Msg, crowdTowns) // not closed: the process ends
	for i := range crowdTowns {
		go f.answer(requests, i)
	}
	_, err := f.commits.Conn().ChanSubscribe("floor", requests)
	require.NoError(b, err)
	follower := f.connection(ns)
	go f.follow(follower)
	nc, err := nats.Connect(ns.ClientURL())
	require.NoError(b, err)
	b.Cleanup(nc.Close)
	newCrowd().drive(b, nc, "floor")
}

// handoffMessages are the messages of one handoff.
type handoffMessages struct {
	streams []jetstream.StreamConfig // of the log and the run events
	answer  *nats.Msg
	log     *jetstream.RawStreamMsg
	events  []*jetstream.RawStreamMsg
}

// messagesOfAHandoff returns the messages of a handoff that a server executed.
func messagesOfAHandoff(b *testing.B) *handoffMessages {
	srv := start(b, open)
	c, nc := newCrowd(), connect(b, srv).nc
	_, err := srv.Engine().Put(b.Context(), c.states[0], "")
	require.NoError(b, err)
	h, err := c.next(0)
	require.NoError(b, err)
	encoded, err := h.MarshalWire()
	require.NoError(b, err)
	m := &handoffMessages{}
	m.answer, err = nc.Request(wire.Subject("main", "handoff"), encoded, 10*time.Second)
	require.NoError(b, err)
	js, err := jetstream.New(nc)
	require.NoError(b, err)
	m.log = m.read(b, js, wire.LogStream("main"), 2)[1]
	m.events = m.read(b, js, wire.EventStream("main"), crowdEvents)
	return m
}

// read waits until a stream has n messages, and returns them without the headers of a direct get.
func (m *handoffMessages) read(
	b *testing.B, js jetstream.JetStream, name string, n uint64,
) (messages []*jetstream.RawStreamMsg) {
	stream, err := js.Stream(b.Context(), name)
	require.NoError(b, err)
	m.streams = append(m.streams, stream.CachedInfo().Config)
	require.Eventually(b, func() bool {
		info, err := stream.Info(b.Context())
		return err == nil && info.State.LastSeq == n
	}, time.Minute, 10*time.Millisecond)
	for seq := uint64(1); seq <= n; seq++ {
		msg, err := stream.GetMsg(b.Context(), seq)
		require.NoError(b, err)
		for _, added := range []string{"Stream", "Sequence", "Time-Stamp", "Subject"} {
			msg.Header.Del("Nats-" + added)
		}
		messages = append(messages, msg)
	}
	return messages
}

// stored is a commit that the log has.
type stored struct {
	run string
	seq uint64 // in the log
}

// floor has NATS do its part of each handoff.
type floor struct {
	b        *testing.B
	messages *handoffMessages
	commits  jetstream.JetStream
	jobs     chan stored
}

func (f *floor) connection(ns *natsserver.Server) jetstream.JetStream {
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	require.NoError(f.b, err)
	f.b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(f.b, err)
	return js
}

// answer commits for one of the towns, and answers.
func (f *floor) answer(requests <-chan *nats.Msg, town int) {
	token, last := fmt.Sprintf("town-%d", town), uint64(0)
	for n := 0; ; n++ {
		request := <-requests
		commit := copyOf(f.messages.log, token)
		commit.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
		ack, err := f.commits.PublishMsg(context.Background(), commit)
		if err != nil {
			panic(err)
		}
		last = ack.Sequence
		f.jobs <- stored{run: fmt.Sprintf("%08x-%08x-4000-8000", town, n), seq: last}
		answer := &nats.Msg{Data: f.messages.answer.Data, Header: f.messages.answer.Header}
		if err := request.RespondMsg(answer); err != nil {
			panic(err)
		}
	}
}

// follow stores run events, with one ack for what is at hand, as a follower does.
func (f *floor) follow(js jetstream.JetStream) {
	var events end
	for job := range f.jobs {
		for group := 0; ; group++ {
			last := group == 8 || len(f.jobs) == 0
			for i, e := range f.messages.events {
				events.publish(js, e, job, strconv.Itoa(i),
					last && i == len(f.messages.events)-1)
			}
			if last {
				break
			}
			job = <-f.jobs
		}
	}
}

// end is the end of a derived stream.
type end struct {
	seq uint64
	id  string
}

// publish publishes a message of a run as a follower does. Only the last of a group is acked.
func (e *end) publish(
	js jetstream.JetStream, like *jetstream.RawStreamMsg, job stored, part string, last bool,
) {
	m := copyOf(like, job.run)
	m.Header.Set(wire.LogSeqHeader, strconv.FormatUint(job.seq, 10))
	m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(e.seq, 10))
	m.Header.Del(jetstream.ExpectedLastMsgIDHeader)
	if e.id != "" {
		m.Header.Set(jetstream.ExpectedLastMsgIDHeader, e.id)
	}
	e.seq, e.id = e.seq+1, job.run+"-"+part
	m.Header.Set(jetstream.MsgIDHeader, e.id)
	var err error
	if last {
		_, err = js.PublishMsgAsync(m)
	} else {
		err = js.Conn().PublishMsg(m)
	}
	if err != nil {
		panic(err)
	}
}

// copyOf returns a message to publish on the subject of another with another last token.
func copyOf(like *jetstream.RawStreamMsg, token string) *nats.Msg {
	dot := strings.LastIndexByte(like.Subject, '.')
	return &nats.Msg{
		Subject: like.Subject[:dot+1] + token, Data: like.Data, Header: maps.Clone(like.Header),
	}
}
