package pending_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/pending"
)

// following is a store behind whose writer another server writes.
type following struct {
	commitlog.Store
	behind func()
}

func (f following) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := f.Store.Publish(ctx, msg)
	f.behind()
	return ack, err
}

// away has every request answered at once with what NATS says where no plugin is subscribed.
type away struct{}

func (away) Ask(_ string, m *apply.Mailbox, attempt int64, _ []byte) error {
	m.Deliver(apply.Reply{Attempt: attempt, Msg: &nats.Msg{
		Header: nats.Header{"Status": {"503"}},
	}})
	return nil
}

func (away) Forget(*apply.Mailbox, bool) {}
func (away) Close()                      {}

// A command that reached nobody is told so only where no request of any server can have arrived.
func TestNobodyWasReached(t *testing.T) {
	t.Parallel()
	unreached, doubt := apply.ReasonPluginUnavailable, apply.ReasonPluginTimeout
	for _, row := range []struct {
		name   string
		change func(*apply.Pending)
		leaves bool // the other server takes itself off the askers
		reason handoff.ReasonCode
		askers []string // of the last record in which the command is pending
	}{
		{"this server alone has asked", func(*apply.Pending) {}, false, unreached,
			[]string{"server"}},
		{"another one says that it reached nobody",
			func(p *apply.Pending) { p.Askers = []string{"server", "other"} }, true, unreached,
			[]string{}},
		{"another one says nothing",
			func(p *apply.Pending) { p.Askers = []string{"server", "other"} }, false, doubt,
			[]string{"other"}},
		{"an earlier attempt may have",
			func(p *apply.Pending) { p.Reached = true }, false, doubt,
			[]string{"server"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var w *working
			w = work(t, func(c *pending.Config) {
				c.Policy.Attempts, c.Policy.Absent = 1, apply.AbsentFail
				c.Policy.Resend = 100 * time.Millisecond
				log := &commitlog.Log{
					World: c.Log.World, MaxPayload: c.Log.MaxPayload, Draw: c.Log.Draw,
				}
				log.Store = following{c.Log.Store, func() {
					if !row.leaves {
						return
					}
					now := w.town()
					if p := now.Pending; p != nil && len(p.Askers) == 1 {
						rec := commitlog.Record{Kind: commitlog.KindPending,
							TownID: "town-threatened"}
						after := now
						after.Pending = p.WithoutAsker("other")
						require.NoError(t, w.log.CommitTown(context.Background(), &rec, &after,
							now.Seq))
					}
				}}
				c.Log, c.Towns = log, commitlog.NewTowns(log)
			}, func(p *apply.Pending) {
				p.Askers, p.Deadline = []string{"server"}, p.NotBefore.Add(300*time.Millisecond)
				row.change(p)
			})
			w.Start(context.Background(), w.turns, away{})
			a := w.await(w.ensure())
			require.NoError(t, a.err)
			require.Equal(t, row.reason, a.Result.ReasonCode)
			require.Equal(t, row.askers, w.before().Askers)
			require.Equal(t, row.reason == doubt,
				slices.Contains(w.alerts, runevents.ApplyInDoubt))
		})
	}
}

// before returns what was pending in the record before the town's last one.
func (w *working) before() *apply.Pending {
	w.t.Helper()
	for seq := w.town().Seq - 1; seq > 0; seq-- {
		msg, err := w.log.Store.At(w.t.Context(), seq)
		require.NoError(w.t, err)
		if rec, err := commitlog.ReadRecord(msg.Data); err == nil && rec.Pending != nil {
			return rec.Pending
		}
	}
	w.t.Fatal("nothing was pending")
	return nil
}

// An answer that comes late, or once too often, is alerted about where it says that the command is
// applied, and only there.
func TestAnswersThatAreNotUsed(t *testing.T) {
	t.Parallel()
	var raised []runevents.Alert
	unused := pending.New(pending.Config{
		Raise: func(a runevents.Alert) { raised = append(raised, a) },
	}).UnusedAnswers()
	of := apply.Identity{TownID: "town-threatened", HandoffID: "handoff_" + strings.Repeat("0", 64),
		RunID: "run"}
	message := func(a apply.Answer) *nats.Msg {
		data, err := a.MarshalWire()
		require.NoError(t, err)
		return &nats.Msg{Data: data}
	}
	command := &apply.Command{ApplyID: of.HandoffID}
	refused := message(apply.Refuse(command, "NO", "no", false))
	unused.Late(of, refused)
	unused.Double(of, refused)
	unused.Late(of, &nats.Msg{Data: []byte("no JSON")})
	require.Empty(t, raised)
	applied := message(apply.Done(command))
	unused.Late(of, applied)
	unused.Double(of, applied)
	require.Len(t, raised, 2)
	require.Equal(t, runevents.PluginLateAnswer, raised[0].Code)
	require.Equal(t, runevents.PluginDoubleAnswer, raised[1].Code)
	require.Equal(t, of.HandoffID, raised[0].HandoffID)
}

// back is a plugin that is away at the first request, and silent from the next one on.
type back struct{ asked chan struct{} }

func (b back) Ask(subject string, m *apply.Mailbox, attempt int64, data []byte) error {
	b.asked <- struct{}{}
	if len(b.asked) > 1 {
		return nil
	}
	return away{}.Ask(subject, m, attempt, data)
}

func (back) Forget(*apply.Mailbox, bool) {}
func (back) Close()                      {}

// What waits behind a command is not refused since a plugin is away once one has taken a request,
// also while it has not said anything.
func TestASilentPluginIsNotAway(t *testing.T) {
	t.Parallel()
	w := work(t, func(c *pending.Config) {
		c.Policy.Absent, c.Policy.Resend = apply.AbsentWait, time.Hour
		c.AbsentWait = time.Hour
	})
	plugin := back{make(chan struct{}, 8)}
	w.Start(context.Background(), w.turns, plugin)
	w.ensure()
	refused := func() bool {
		return w.Absent("town-threatened", w.current.Pending.Run.RunID, "behind") != nil
	}
	require.Eventually(t, refused, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return len(plugin.asked) == 2 }, 30*time.Second,
		time.Millisecond)
	require.Eventually(t, func() bool { return !refused() }, 30*time.Second, time.Millisecond)
}
