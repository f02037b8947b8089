package handoffd

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/wire"
)

var clusterDamage = flag.Int("cluster.damage", 0,
	"how many cases TestCluster_Damage has, drawn by -torture.seed; 0 leaves it out")

// logFiles are the files of the log's messages at node i, and walFiles the Raft logs of its streams.
func (c *nodes) logFiles(i int, pattern string) []string {
	return c.files(i, "$G", "streams", layout.LogStream(wire.DefaultWorld), "msgs", pattern)
}

func (c *nodes) walFiles(i int) []string { return c.files(i, "$SYS", "_js_", "S-*", "msgs", "*.blk") }

// files returns the files of node i that match, with their numbers in order.
func (c *nodes) files(i int, path ...string) []string {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(append([]string{c.data(i), "jetstream"}, path...)...))
	require.NoError(c.t, err)
	require.NotEmpty(c.t, found, "%v", path)
	slices.SortFunc(found, func(a, b string) int {
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return found
}

// flip changes a bit of a file, at an offset that counts from its end if it is negative.
func (c *nodes) flip(name string, at int) {
	c.t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(c.t, err)
	if at < 0 {
		at += len(data)
	}
	if 0 <= at && at < len(data) { // an empty file of Raft has no bit
		data[at] ^= 0x10
		require.NoError(c.t, os.WriteFile(name, data, 0o600))
	}
}

// cutFile cuts a file at an offset, which counts from its end if it is negative.
func (c *nodes) cutFile(name string, at int64) {
	c.t.Helper()
	info, err := os.Stat(name)
	require.NoError(c.t, err)
	if at < 0 {
		at = max(0, info.Size()+at)
	}
	require.NoError(c.t, os.Truncate(name, min(at, info.Size())))
}

func (c *nodes) remove(name string) {
	c.t.Helper()
	require.NoError(c.t, os.Remove(name))
}

// damages change the files of one node. The log has two blocks at least.
var damages = []struct {
	name string
	make func(c *nodes, i int)
}{
	{"a bit of the oldest block", func(c *nodes, i int) { c.flip(c.logFiles(i, "*.blk")[0], 9000) }},
	{"the tail of the oldest block", func(c *nodes, i int) { c.cutFile(c.logFiles(i, "*.blk")[0], 9000) }},
	{"the oldest block", func(c *nodes, i int) { c.remove(c.logFiles(i, "*.blk")[0]) }},
	{"a bit of the newest block", func(c *nodes, i int) { c.flip(last(c.logFiles(i, "*.blk")), -9000) }},
	{"the tail of the newest block", func(c *nodes, i int) { c.cutFile(last(c.logFiles(i, "*.blk")), -9000) }},
	{"the newest block", func(c *nodes, i int) { c.remove(last(c.logFiles(i, "*.blk"))) }},
	{stateFile, func(c *nodes, i int) { c.flip(c.logFiles(i, "index.db")[0], 200) }},
	{"the tails of the Raft logs", func(c *nodes, i int) {
		for _, name := range c.walFiles(i) {
			c.cutFile(name, -3000)
		}
	}},
	{"a bit of each Raft log", func(c *nodes, i int) {
		for _, name := range c.walFiles(i) {
			c.flip(name, -900)
		}
	}},
	{"the Raft logs", func(c *nodes, i int) {
		for _, name := range c.walFiles(i) {
			c.remove(name)
		}
	}},
}

// stateFile is a damage of the file that NATS writes when it stops, and believes when it starts.
const stateFile = "a bit of the state's file"

// damageCase is a damage of one node.
type damageCase struct {
	damage, moment int
	leads          bool // the node leads the log
}

func (c damageCase) String() string {
	who := "a follower"
	if c.leads {
		who = "the leader"
	}
	return damages[c.damage].name + " of " + who + " " + moments[c.moment].name
}

// damageCases returns all cases.
func damageCases() (all []damageCase) {
	for damage := range damages {
		for moment := range moments {
			if damages[damage].name == stateFile && moments[moment].end != syscall.SIGTERM {
				continue
			}
			all = append(all, damageCase{damage, moment, false}, damageCase{damage, moment, true})
		}
	}
	return all
}

// last returns the last element.
func last[E any](all []E) E { return all[len(all)-1] }

// moments are when a node's files are changed.
var moments = []struct {
	name string
	end  syscall.Signal // of the node before; itself: the node runs
}{{"after SIGTERM", syscall.SIGTERM}, {"after SIGKILL", syscall.SIGKILL}, {"while it runs", itself}}

// The files of one node are damaged, and all servers start again, and once more when the damaged node
// leads the log. No key that was answered is unknown or judged again, and no town is created a second
// time: the servers have the whole log from an intact node, or answer that it is damaged and say at
// which node. Emptied and started again, the node fetches the log, and everything is answered.
func TestCluster_Damage(t *testing.T) {
	if *clusterDamage == 0 {
		t.Skip("takes half a minute for each case; -cluster.damage=3 has three")
	}
	var w *clusterWorld
	seed := rand.New(rand.NewPCG(newHammer(t, 0, "").seed, 2))
	cases := damageCases()
	seed.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	for n := range *clusterDamage {
		if w == nil { // for the first case, and after a failure: what that has lost is lost
			w = startDamaged(t)
		}
		c := cases[n%len(cases)]
		if !t.Run(c.String(), func(t *testing.T) { w.reportTo(t); w.damaged(c) }) {
			w.reportTo(t)
			w = nil
		}
	}
}

// damaged damages a node, and requires that nothing is answered wrongly until it is emptied.
func (w *clusterWorld) damaged(c damageCase) {
	w.t.Helper()
	i, end := w.replicas(w.clients[0]), moments[c.moment].end
	if !c.leads {
		i = (i + 1) % size
	}
	if end != itself {
		w.running[i].end(end)
	}
	damages[c.damage].make(w.nodes, i)
	if end == itself {
		w.more()
		w.running[i].end(syscall.SIGTERM)
	}
	w.start(i)
	w.waitAll()
	w.startAgain()
	w.requireHonest(i, "after its start")
	lacking := w.lackingNodes()
	require.Subset(w.t, []string{nodeName(i)}, lacking)
	w.t.Logf("fsck --replicas names %v", lacking)
	w.killEngines() // which would have another node lead
	w.lead(i)
	w.startAgain()
	w.requireHonest(i, "as the leader")
	w.empty(i)
	require.Empty(w.t, w.lackingNodes(), "after the node was emptied")
	w.startAgain()
	require.Empty(w.t, w.wrong(), "after the node was emptied")
	w.more()
}

// lackingNodes returns the nodes that lack messages of the log, as fsck finds them.
func (w *clusterWorld) lackingNodes() (lacking []string) {
	w.t.Helper()
	report, err := fsck.Run(w.t.Context(), operator(w.t, w.clients[0]), wire.DefaultWorld,
		fsck.Options{Replicas: true})
	require.NoError(w.t, err)
	require.Len(w.t, report.Replicas, size)
	for _, r := range report.Replicas {
		require.Empty(w.t, r.SkipReason)
		if r.LackCount > 0 {
			lacking = append(lacking, r.Node)
		}
	}
	return lacking
}

// nodeName is the name of node i in NATS.
func nodeName(i int) string { return fmt.Sprint("nats-", i+1) }

// reportTo has the world report to a subtest.
func (w *clusterWorld) reportTo(t testing.TB) {
	w.t, w.nodes.t, w.hammer.t = t, t, t
}

// startDamaged starts a world whose log has two blocks.
func startDamaged(t testing.TB) *clusterWorld {
	t.Helper()
	w := startWorld(t)
	w.hammer = newHammer(t, 4, "")
	w.hammer.create(w.clients...)
	w.more()
	random, raw := rand.NewChaCha8([32]byte{}), make([]byte, 380<<10)
	for n := range 12 { // 4.6 MB, of which a block has 4
		_, _ = random.Read(raw)
		ask[townNow](t, w.clients[0], wire.TownPut, members{"snapshot": town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: fmt.Sprint("large ", n),
			SideQuests: []town.SideQuest{}, Projects: []town.Project{},
			Mission: &town.Mission{ID: "m", Title: "m",
				Description: new(base64.StdEncoding.EncodeToString(raw))},
		}})
	}
	w.more()
	return w
}

// more has every town make some more requests.
func (w *clusterWorld) more() {
	w.t.Helper()
	w.hammer.start()
	w.hammer.waitEach(12)
	w.hammer.end()
	w.hammer.settle()
}

func (w *clusterWorld) killEngines() {
	for _, e := range w.engines {
		e.end(syscall.SIGKILL)
	}
}

// startAgain kills all engines, starts them again, and waits until one serves, or until all have
// said for some time why none does.
func (w *clusterWorld) startAgain() {
	w.t.Helper()
	w.killEngines()
	for i := range size {
		w.startEngine(i)
	}
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		if slices.ContainsFunc(w.engines[:], func(e *program) bool { return e.is("ready") }) {
			return
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

// lead has the log led by a node.
func (w *clusterWorld) lead(i int) {
	w.t.Helper()
	js, err := jetstream.New(w.clients[(i+1)%size])
	require.NoError(w.t, err)
	eventually(w.t, 30*time.Second, "it leads", func(ctx context.Context) error {
		name := nodeName(i)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, layout.LogStream(wire.DefaultWorld))
		if err != nil || s.CachedInfo().Cluster.Leader == name {
			return err
		}
		reply, err := js.Conn().RequestWithContext(ctx,
			"$JS.API.STREAM.LEADER.STEPDOWN."+layout.LogStream(wire.DefaultWorld),
			fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, name))
		if err == nil {
			err = fmt.Errorf("the leader is still %s: %s", s.CachedInfo().Cluster.Leader, reply.Data)
		}
		time.Sleep(200 * time.Millisecond) // the election
		return err
	})
}

// empty starts a node without its data, as docs/repair.md says.
func (w *clusterWorld) empty(i int) {
	w.t.Helper()
	w.running[i].end(syscall.SIGTERM)
	require.NoError(w.t, os.RemoveAll(w.data(i)))
	w.start(i)
	w.waitAll()
	w.replicas(w.clients[(i+1)%size])
}

// requireHonest requires that the world answers nothing wrongly, and comes to answer everything: an
// intact node leads the log. If a town counted as damaged before, an alert and the status name the
// node.
func (w *clusterWorld) requireHonest(node int, when string) {
	w.t.Helper()
	refused := false
	eventually(w.t, time.Minute, when, func(context.Context) error {
		wrong := w.wrong()
		for answer := range wrong {
			require.Contains(w.t, answer, "refused", "%s: %v", when, wrong)
			refused = refused || strings.Contains(answer, "TOWN_DAMAGED")
		}
		if len(wrong) > 0 {
			return fmt.Errorf("%v", wrong)
		}
		return nil
	})
	w.t.Logf("%s, TOWN_DAMAGED at first: %t", when, refused)
	if refused {
		w.requireSaid(node)
	}
}

// requireSaid requires that an alert and the status say which node is damaged.
func (w *clusterWorld) requireSaid(node int) {
	w.t.Helper()
	page, err := w.request(wire.AlertList, []byte("{}"))
	require.NoError(w.t, err)
	require.Contains(w.t, string(page.Data), "The node "+nodeName(node)+" of NATS lacks")
	status, err := w.request(wire.WorldStatus, []byte("{}"))
	require.NoError(w.t, err)
	var s struct {
		Healthy  bool
		Problems []string
	}
	require.NoError(w.t, json.Unmarshal(status.Data, &s))
	require.False(w.t, s.Healthy)
	require.Contains(w.t, strings.Join(s.Problems, "\n"), nodeName(node)+" (")
}

// wrong asks about every accepted key and every town, and counts the answers that are not the right
// ones. An answer that the world refuses to give begins with "refused".
func (w *clusterWorld) wrong() map[string]int {
	w.t.Helper()
	w.patience = 5 * time.Second
	wrong := map[string]int{}
	count := func(verb wire.Verb, body []byte, right func(reply *nats.Msg) string) {
		reply, err := w.request(verb, body)
		switch {
		case err != nil:
			wrong["refused "+string(verb)+": "+err.Error()]++
		case reply.Header.Get(wire.ErrorCodeHeader) == "503" || codeOf(reply) == "TOWN_DAMAGED" ||
			codeOf(reply) == "RUN_DAMAGED":
			wrong["refused "+string(verb)+": "+codeOf(reply)]++
		default:
			if not := right(reply); not != "" {
				wrong[string(verb)+": "+not]++
			}
		}
	}
	for _, d := range w.hammer.towns {
		count(wire.TownGet, fmt.Appendf(nil, `{"townId":%q}`, d.id), func(reply *nats.Msg) string {
			if kind, _, hash, _ := answerOf(reply); hash != d.state.Hash {
				return "another state: " + kind
			}
			return ""
		})
		for _, k := range d.accepted {
			count(wire.ResultGet, fmt.Appendf(nil, `{"idempotencyKey":%q,"townId":%q}`, k.key, d.id),
				func(reply *nats.Msg) string {
					if !bytes.Contains(reply.Data, []byte(k.resultID)) {
						return codeOf(reply)
					}
					return ""
				})
			count(wire.Handoff, []byte(k.wire), func(reply *nats.Msg) string {
				kind, resultID, _, _ := answerOf(reply)
				if kind != string(handoff.Duplicate) || resultID != k.resultID {
					return kind
				}
				return ""
			})
		}
		again := d.putOf(d.state, "")
		count(again.verb, again.body, func(reply *nats.Msg) string {
			if kind, _, _, _ := answerOf(reply); kind != "TOWN_EXISTS" {
				return kind
			}
			return ""
		})
	}
	return wrong
}

// request makes a request until it is answered with something else than to ask again, for some
// seconds. It then returns the last answer.
func (w *clusterWorld) request(verb wire.Verb, body []byte) (reply *nats.Msg, err error) {
	for until := time.Now().Add(w.patience); ; time.Sleep(50 * time.Millisecond) { // between two tries
		reply, err = w.clients[0].Request(wire.Subject(wire.DefaultWorld, verb), body, 3*time.Second)
		if err == nil && (reply.Header.Get(wire.ErrorCodeHeader) != "503" ||
			codeOf(reply) == "TOWN_DAMAGED") {
			return reply, nil
		}
		if time.Now().After(until) {
			w.patience = 0 // for the next request: there are many, and this one has waited for all
			return reply, err
		}
	}
}
