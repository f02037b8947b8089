package systemtest_test

import (
	"bytes"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// gate is a dialer whose connections stop before they ask, for the second time, for the state of a
// stream.
type gate struct {
	asks           []byte
	times          atomic.Int64
	reached, going chan struct{}
}

func (g *gate) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &gated{conn, g}, err
}

type gated struct {
	net.Conn
	gate *gate
}

func (c *gated) Write(p []byte) (int, error) {
	if bytes.Contains(p, c.gate.asks) && c.gate.times.Add(1) == 2 {
		close(c.gate.reached)
		<-c.gate.going
	}
	return c.Conn.Write(p)
}

// A check goes on while the stream of run events discards, by its limit, what the check has read
// and not compared yet: nothing is wrong with that.
func TestFsckWhileTheLimitDiscardsEvents(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{EventLimit: 35})
	w.populate()
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "busy" })
	w.put(state, "")
	w.clean() // which waits for the derived streams
	g := &gate{
		asks:    []byte("STREAM.INFO." + wire.EventStream("main") + " "),
		reached: make(chan struct{}), going: make(chan struct{}),
	}
	nc, err := natsconn.Options{}.ConnectOperator(w.srv.URL(), "gated", nats.SetCustomDialer(g))
	require.NoError(t, err)
	defer nc.Close()
	type outcome struct {
		report *fsck.Report
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		report, err := fsck.Run(t.Context(), nc, wire.DefaultWorld, fsck.Options{
			Logger: slog.New(slog.DiscardHandler),
		})
		done <- outcome{report, err}
	}()
	select {
	case <-g.reached:
	case <-time.After(20 * time.Second):
		t.Fatal("the check does not look where the stream begins")
	}
	before := w.firstEvent()
	w.talk(state)
	require.Eventually(t, func() bool {
		return w.firstEvent() >= before+10
	}, 20*time.Second, 10*time.Millisecond)
	close(g.going)
	o := <-done
	require.NoError(t, o.err)
	require.Empty(t, o.report.Findings)
	require.NotZero(t, o.report.Counts.Expired)
}
