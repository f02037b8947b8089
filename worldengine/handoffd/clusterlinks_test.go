package handoffd

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/wire"
)

var clusterLinks = flag.Int("cluster.links", 0,
	"how many cuts TestCluster_Links makes, drawn by -torture.seed; 0 leaves it out")

// way cuts the way from node i to node j, or heals it. The way back stays.
func (c *nodes) way(i, j int, cut bool) {
	c.links[i][j].CutTo(cut)
	c.links[j][i].CutFrom(cut)
}

// linkCuts are the cuts about a node: some leave it alone, others leave it one of its neighbours.
var linkCuts = []struct {
	name string
	make func(c *nodes, i int, cut bool)
}{
	{"cut off", (*nodes).cut},
	{"deaf", func(c *nodes, i int, cut bool) {
		c.way((i+1)%size, i, cut)
		c.way((i+2)%size, i, cut)
	}},
	{"mute", func(c *nodes, i int, cut bool) {
		c.way(i, (i+1)%size, cut)
		c.way(i, (i+2)%size, cut)
	}},
	{"without the link to a neighbour", func(c *nodes, i int, cut bool) {
		c.way(i, (i+1)%size, cut)
		c.way((i+1)%size, i, cut)
	}},
	{"mute towards a neighbour", func(c *nodes, i int, cut bool) { c.way(i, (i+1)%size, cut) }},
}

// linkNodes choose the node of a cut. The writer and its clients know no other node than their own.
var linkNodes = []struct {
	name   string
	choose func(w *clusterWorld) int
}{
	{"the writer's node", (*clusterWorld).writer},
	{"the node that leads the log", func(w *clusterWorld) int { return w.replicas(w.clients[0]) }},
	{"a node beside the writer's", func(w *clusterWorld) int { return (w.writer() + 1) % size }},
}

// Links between nodes are cut, also one way only, about the writer's node or another one, while
// agents send handoffs, a game applies commands, a person approves proposals, and another one pauses
// towns. A cut lasts between the time in which nobody notices it and the time in which everybody
// does. Afterwards the leader's log accepts no key twice, every key that was answered is found and
// is a duplicate when it is sent again, and nobody has said that the log lost something.
func TestCluster_Links(t *testing.T) {
	if *clusterLinks == 0 {
		t.Skip("takes half a minute for each cut; -cluster.links=3 makes three")
	}
	w := &clusterWorld{nodes: startNodes(t), args: []string{"--plugin-attempts=100", "--history-per-town=1000000"}}
	for i := range size {
		w.at[i] = w.url(i)
	}
	w.startEngines()
	g, people := newGame(), w.invite()
	g.play(t, w.connect(w.urls(1)))
	w.driveBoth(drivenByLong)
	random := rand.New(rand.NewPCG(w.hammer.seed, 0))
	order := random.Perm(len(linkCuts) * len(linkNodes))
	stop := people.work(random.Uint64())
	for n := range *clusterLinks {
		drawn := order[n%len(order)]
		cut, at := linkCuts[drawn%len(linkCuts)], linkNodes[drawn/len(linkCuts)]
		i, lasts := at.choose(w), 500*time.Millisecond<<random.IntN(6) // up to 16 s
		from := time.Now()
		cut.make(w.nodes, i, true)
		time.Sleep(lasts) // the cut
		cut.make(w.nodes, i, false)
		w.hammer.waitEach(5)
		logGaps(t, fmt.Sprintf("%s, %s for %s", at.name, cut.name, lasts),
			[]gap{w.hammer.gapSince(from)})
		w.replicas(w.clients[0])
	}
	approved := stop()
	w.hammer.end()
	w.hammer.verifyAll(w.clients[0], approved)
	w.sendAgain()
	require.Equal(t, w.hammer.executedBy("plugin"), g.changed())
	w.requireNoneLost()
	t.Logf("replies: %v; %d handoffs approved by a person", w.hammer.replies(), len(approved))
}

// driveBoth is drive for towns of which a game has each second one.
func (w *clusterWorld) driveBoth(towns int) {
	w.t.Helper()
	w.hammer = newHammer(w.t, towns, "")
	for n := range w.hammer.towns {
		if n%2 == 1 {
			w.hammer.towns[n] = newDriven(n, "plugin", w.hammer.seed)
		}
	}
	w.hammer.create(w.clients...)
	w.hammer.start()
	w.hammer.waitEach(2)
}

// executedBy counts the handoffs that were executed in the towns with a binding.
func (h *hammer) executedBy(apply string) (n int) {
	for _, d := range h.towns {
		if d.apply == apply {
			n += d.replies["executed"]
		}
	}
	return n
}

// verifyAll is verify for every answer that was ever given, and for handoffs that others had accepted.
func (h *hammer) verifyAll(nc *nats.Conn, others []string) {
	h.t.Helper()
	for _, d := range h.towns {
		d.verified = 0
	}
	for _, key := range others {
		receiptOf(h.t, nc, key)
	}
	h.verify(nc, len(others))
	require.EqualValues(h.t, h.accepted()+len(others), leaderCheck(h.t, nc).Accepted)
}

// accepted counts the accepted handoffs.
func (h *hammer) accepted() (n int) {
	for _, d := range h.towns {
		n += len(d.accepted)
	}
	return n
}

// leaderCheck checks the log as its leader has it, message by message, and returns its counts.
func leaderCheck(t testing.TB, nc *nats.Conn) fsck.Counts {
	t.Helper()
	js, err := jetstream.New(operator(t, nc))
	require.NoError(t, err)
	log, err := commitlog.OpenReader(t.Context(), js, wire.DefaultWorld)
	require.NoError(t, err)
	check := fsck.NewLogChecker(wire.DefaultWorld, func(seq uint64) (*jetstream.RawStreamMsg, error) {
		return log.Store.At(t.Context(), seq)
	})
	for seq := uint64(1); ; {
		msg, err := log.Store.Next(t.Context(), ">", seq)
		require.NoError(t, err)
		if msg == nil {
			return check.Counts
		}
		findings, err := check.Check(msg)
		require.NoError(t, err)
		require.Empty(t, findings, "the leader's log at %d", msg.Sequence)
		seq = msg.Sequence + 1
	}
}

// sendAgain sends every accepted handoff once more: each is a duplicate of its first result.
func (w *clusterWorld) sendAgain() {
	w.t.Helper()
	for _, d := range w.hammer.towns {
		for _, k := range d.accepted {
			again := insist(w.t, w.clients[0], []byte(k.wire), 10*time.Second)
			require.Equal(w.t, handoff.Duplicate, again.Status, "%s: %s", d.id, k.key)
			require.Equal(w.t, k.resultID, *again.Evaluation.DuplicateCheck.DuplicateOf)
		}
	}
}

// requireNoneLost requires that no server has ever said that the log has lost messages.
func (w *clusterWorld) requireNoneLost() {
	w.t.Helper()
	for i, e := range w.engines {
		require.NotContains(w.t, e.stderr.String(), "LOG_LOST", "engine %d", i+1)
	}
	page := ask[struct {
		Alerts []struct{ Code, Message string }
	}](w.t, w.clients[0], wire.AlertList,
		members{})
	for _, a := range page.Alerts {
		require.NotEqual(w.t, "LOG_LOST", a.Code, a.Message)
	}
}

// people work beside the agents: one approves the proposals about a town, another pauses towns.
type people struct{ w *clusterWorld }

// peopleTown is the town whose proposals need an approval.
const peopleTown = "the town of people"

func (w *clusterWorld) invite() people {
	w.t.Helper()
	snapshot := *newDriven(0, "", 1).state.Snapshot
	snapshot.TownID = peopleTown
	ask[townNow](w.t, w.clients[0], wire.TownPut,
		members{"snapshot": snapshot, "approval": []string{string(handoff.TalkToTownsfolk)}})
	return people{w}
}

// work has them work until stop is called, which returns the keys that were approved and accepted.
func (p people) work(seed uint64) (stop func() (approved []string)) {
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	var approved []string
	working.Go(func() {
		for key := ""; ctx.Err() == nil; approved = append(approved, key) {
			if key = p.approve(); key == "" {
				return
			}
		}
	})
	working.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1))
		for ctx.Err() == nil {
			body := fmt.Appendf(nil, `{"townId":%q,"actorId":"ada","reason":"a look"}`,
				p.w.hammer.towns[random.IntN(len(p.w.hammer.towns))].id)
			for _, verb := range []wire.Verb{wire.ControlPause, wire.ControlResume} {
				// An earlier try may have been stored.
				reply, codes := p.ask(verb, body), []string{"", "ALREADY_PAUSED", "NOT_PAUSED"}
				if reply == nil || !assert.Contains(p.w.t, codes, codeOf(reply), verb) {
					return
				}
				time.Sleep(100 * time.Millisecond) // the pause, and the time between two
			}
		}
	})
	return func() []string { cancel(); working.Wait(); return approved }
}

// approve has a handoff approved and executed, and returns its key; "" if that failed.
func (p people) approve() (key string) {
	reply := p.ask(wire.TownGet, fmt.Appendf(nil, `{"townId":%q}`, peopleTown))
	var now townNow
	if reply == nil || !assert.NoError(p.w.t, json.Unmarshal(reply.Data, &now)) {
		return ""
	}
	body := talk(peopleTown, now.SnapshotHash, now.DecisionEpoch, 0.5)
	asked := p.send(body)
	if asked == nil || !assert.Equal(p.w.t, handoff.ReasonApprovalRequired, asked.ReasonCode) {
		return ""
	}
	waiting := waitingApproval{TownID: peopleTown, HandoffID: asked.HandoffID}
	if p.ask(wire.ApprovalDecide, waiting.decision(false)) == nil { // or an earlier try was stored
		return ""
	}
	executed := p.send(body)
	if executed == nil || !assert.Contains(p.w.t,
		[]handoff.Status{handoff.Executed, handoff.Duplicate}, executed.Status) {
		return ""
	}
	return parsed(body).IdempotencyKey
}

// send returns the result of a handoff; nil if there is none.
func (p people) send(body []byte) *handoff.Result {
	reply := p.ask(wire.Handoff, body)
	if reply == nil {
		return nil
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	assert.NoError(p.w.t, err, "%s", reply.Data)
	return result
}

// ask makes a request at one node after the other until it gets an answer other than 503; nil if it
// gets none in two minutes.
func (p people) ask(verb wire.Verb, body []byte) (reply *nats.Msg) {
	err := errors.New("no try")
	for until, n := time.Now().Add(2*time.Minute), 0; time.Now().Before(until); n++ {
		reply, err = p.w.clients[n%size].Request(wire.Subject(wire.DefaultWorld, verb), body, 3*time.Second)
		if err == nil && reply.Header.Get(wire.ErrorCodeHeader) != "503" {
			return reply
		}
		time.Sleep(20 * time.Millisecond) // between two tries
	}
	assert.Fail(p.w.t, "no answer", "%s: %v", verb, err)
	return nil
}
