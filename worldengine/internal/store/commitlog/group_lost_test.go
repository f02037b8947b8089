package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/testkit/natstest"
)

// trouble is a link's fault with the first batch.
type trouble string

const (
	answerLate  trouble = "the answer comes after the callers gave up"
	answerLost  trouble = "the connection breaks when the answer comes"
	requestLost trouble = "the connection breaks before the end of the batch is sent"
)

// lossyLink dials connections to a NATS server. The first batch meets its trouble.
type lossyLink struct {
	trouble
	met      atomic.Bool   // the end of the first batch came by
	released chan struct{} // what is read late may be read
}

func (l *lossyLink) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &lossyConn{Conn: conn, link: l}, err
}

type lossyConn struct {
	net.Conn
	link *lossyLink
	lost atomic.Bool // nothing is read any more
}

var errLinkBroken = errors.New("the link broke")

func (c *lossyConn) Write(data []byte) (int, error) {
	end := bytes.Index(data, []byte(jetstreamext.BatchCommitHeader))
	if end < 0 || c.link.met.Swap(true) {
		return c.Conn.Write(data)
	}
	if c.link.trouble != requestLost {
		c.lost.Store(true)
		return c.Conn.Write(data)
	}
	_, _ = c.Conn.Write(data[:end])
	_ = c.Close()
	return 0, errLinkBroken
}

// Read reads the server's data. It is called before the end of the batch is sent, and returns the
// answer to it.
func (c *lossyConn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	switch {
	case !c.lost.Load() || err != nil:
		return n, err
	case c.link.trouble == answerLost:
		_ = c.Close()
		return 0, errLinkBroken
	}
	<-c.link.released
	return n, nil
}

// newLossy makes a log whose grouped store goes over a link, and a store on the same stream without
// it. The link delays late answers until so many appends have ended.
func newLossy(t *testing.T, of trouble, appends int64) (l *Log, direct Store) {
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), StreamConfig("main", 1))
	require.NoError(t, err)
	link := &lossyLink{trouble: of, released: make(chan struct{})}
	over := natstest.Dial(t, nc.ConnectedUrl(), nats.SetCustomDialer(link),
		nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
	js, err = jetstream.New(over)
	require.NoError(t, err)
	seen, err := js.Stream(t.Context(), layout.LogStream("main"))
	require.NoError(t, err)
	store := NewStore(js, seen, true)
	store.(*GroupedStore).timeout = 300 * time.Millisecond
	ended := atomic.Int64{}
	return &Log{
		World: "main", Store: store, MaxPayload: over.MaxPayload,
		Jitter: rand.N[time.Duration],
		OnAppendTried: func(time.Duration) {
			if ended.Add(1) == appends {
				close(link.released)
			}
		},
	}, NewStore(nil, stream, false)
}

// A batch whose answer is lost is stored once: each of its appends finds whether it was stored, is
// stored by another attempt, or has lost its race.
func TestGroupedStore_AnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, of := range []trouble{answerLate, answerLost, requestLost} {
		for _, race := range []bool{false, true} {
			t.Run(fmt.Sprint(of, ", with a lost race: ", race), func(t *testing.T) {
				t.Parallel()
				const n = 2*minBatch + 2
				l, direct := newLossy(t, of, n)
				before := uint64(0)
				if race {
					ack, err := l.Store.Publish(t.Context(), appendTo(3, 0, "of another"))
					require.NoError(t, err)
					before = ack.Sequence
				}
				messages, ends := commitAtOnce(t, l, n)
				stored := uint64(0)
				for i, end := range ends {
					if race && i == 3 {
						require.ErrorIs(t, end.err, ErrLostRace)
						continue
					}
					require.NoError(t, end.err)
					stored++
					last, err := direct.Last(t.Context(), messages[i].Subject)
					require.NoError(t, err)
					require.Equal(t, messages[i].Data, last.Data)
					if i%2 == 1 {
						require.Equal(t, last.Sequence, end.seq)
					}
				}
				end, err := direct.End(t.Context())
				require.NoError(t, err)
				require.Equal(t, before+stored, end, "each is stored once")
				l.Store.(*GroupedStore).isIdle(t)
			})
		}
	}
}

// committed is the end of a commit, or of a refused run, which has no sequence.
type committed struct {
	seq uint64
	err error
}

// commitAtOnce stores messages in one batch: commits of towns, and refused runs.
func commitAtOnce(t *testing.T, l *Log, n int) (messages []*nats.Msg, ends []committed) {
	s := l.Store.(*GroupedStore)
	release := s.block()
	ends = make([]committed, n)
	var all sync.WaitGroup
	for i := range n {
		msg := appendTo(i, 0, fmt.Sprint("first of ", i))
		if i%2 == 0 {
			msg.Subject = layout.RefusedSubject("main", fmt.Sprint(i))
			msg.Header = nats.Header{}
		}
		messages = append(messages, msg)
		all.Go(func() {
			if i%2 == 0 {
				ends[i].err = l.CommitWithID(t.Context(), msg, fmt.Sprint("run ", i), nil)
			} else {
				ends[i].seq, ends[i].err = l.Commit(t.Context(), msg, 0)
			}
		})
	}
	s.await(t, n)
	release()
	all.Wait()
	return messages, ends
}
