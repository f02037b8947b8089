package handoffd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/wire"
)

var hammerSeed = flag.Uint64("torture.seed", 0, "the seed of the clients' draws; 0 for a random one")

// hammer drives some towns and knows their states: it is the model that a world is held against. Each
// town has one client, which makes one request after another, and a request without an answer again.
type hammer struct {
	t     testing.TB
	world string
	seed  uint64
	apply string // of the towns; "" for the world's
	towns []*driven
	// patience is when a client gives an answer up and asks again.
	patience time.Duration
	pace     time.Duration // between two requests of a client
	end      func()        // ends what start began, and waits for it
}

func newHammer(t testing.TB, towns int, apply string) *hammer {
	h := &hammer{
		t: t, world: wire.DefaultWorld, seed: cmp.Or(*hammerSeed, rand.Uint64()), apply: apply,
		patience: 2 * time.Second,
	}
	for n := range towns {
		h.towns = append(h.towns, newDriven(n, apply, h.seed))
	}
	return h
}

// useWorld makes the hammer drive another world than main.
func (h *hammer) useWorld(world string) *hammer {
	h.world = world
	for _, d := range h.towns {
		d.world = world
	}
	return h
}

// create creates the towns, and gives each client one of the connections.
func (h *hammer) create(clients ...*nats.Conn) {
	h.t.Helper()
	h.moveTo(clients...)
	h.settle()
}

// moveTo gives each client another connection; none may be at work.
func (h *hammer) moveTo(clients ...*nats.Conn) {
	for i, d := range h.towns {
		d.home = i % len(clients)
		d.nc = clients[d.home]
	}
}

// drive has each client make requests while more says so, until ctx ends.
func (h *hammer) drive(ctx context.Context, more func(*driven) bool) {
	var clients sync.WaitGroup
	for _, d := range h.towns {
		clients.Go(func() {
			for ctx.Err() == nil && more(d) {
				if err := d.step(ctx, h.patience); err != nil {
					h.t.Errorf("-torture.seed=%d: %s: %v", h.seed, d.id, err)
					return
				}
				_ = backoff.Sleep(ctx, h.pace)
			}
		})
	}
	clients.Wait()
}

// start drives every town until end.
func (h *hammer) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var driving sync.WaitGroup
	driving.Go(func() { h.drive(ctx, func(*driven) bool { return true }) })
	h.end = func() { cancel(); driving.Wait() }
	h.t.Cleanup(h.end)
}

// settle has the open requests answered.
func (h *hammer) settle() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h.drive(ctx, func(d *driven) bool { return d.open != nil })
	for _, d := range h.towns {
		require.Nil(h.t, d.open, "-torture.seed=%d: %s is not answered: %v", h.seed, d.id, d.replies)
	}
}

// verify holds a world against the model, when no client is at work: the state of every town, the
// answers that were given, and the log. others is how many handoffs somebody else had accepted.
func (h *hammer) verify(nc *nats.Conn, others int) {
	h.t.Helper()
	h.moveTo(nc)
	h.settle()
	for _, d := range h.towns {
		h.verifyTown(d)
		others += len(d.accepted)
	}
	require.EqualValues(h.t, others, requireSoundIn(h.t, nc, h.world).Counts.Accepted)
}

// verifyTown verifies the answers since it was last called, and at least the last 50.
func (h *hammer) verifyTown(d *driven) {
	h.t.Helper()
	at := askIn[townNow](h.t, d.nc, d.world, wire.TownGet, members{"townId": d.id})
	require.Equal(h.t, d.state.Hash, at.SnapshotHash, "-torture.seed=%d: %s", h.seed, d.id)
	require.Empty(h.t, at.PendingRunID)
	for _, k := range d.accepted[max(0, min(d.verified, len(d.accepted)-50)):] {
		kept := string(askIn[receipt](h.t, d.nc, d.world, wire.ResultGet,
			members{"idempotencyKey": k.key}).Result)
		if k.bytes != "" {
			require.Equal(h.t, k.bytes, kept, "-torture.seed=%d: an answer was lost", h.seed)
		}
		require.Contains(h.t, kept, k.resultID)
	}
	d.verified = len(d.accepted)
}

// answers counts the answers since a moment.
func (h *hammer) answers(from time.Time) (n int) {
	for _, d := range h.towns {
		n += len(d.answersSince(from))
	}
	return n
}

// waitMore waits until there are more answers, and returns how long that took.
func (h *hammer) waitMore(more int) time.Duration {
	h.t.Helper()
	began := time.Now()
	for h.answers(began) < more {
		require.Less(h.t, time.Since(began), time.Minute, "%d answers, and %v", h.answers(began), h.replies())
		time.Sleep(time.Millisecond) // between two looks
	}
	return time.Since(began)
}

// waitEach waits until each town whose client is at home at one of homes, or each at all, has some
// more answers: service is back for everybody.
func (h *hammer) waitEach(more int, homes ...int) {
	h.t.Helper()
	from := time.Now()
	eventually(h.t, 2*time.Minute, "every town is answered", func(context.Context) error {
		for _, d := range h.townsAt(homes) {
			if n := len(d.answersSince(from)); n < more {
				return fmt.Errorf("%s has %d new answers; %v", d.id, n, h.replies())
			}
		}
		return nil
	})
}

// townsAt returns the towns whose clients are at home at one of homes, or all.
func (h *hammer) townsAt(homes []int) []*driven {
	return slices.DeleteFunc(slices.Clone(h.towns), func(d *driven) bool {
		return homes != nil && !slices.Contains(homes, d.home)
	})
}

// replies counts the replies of all towns: the answers by kind, and what came instead of one.
func (h *hammer) replies() map[string]int {
	sum := map[string]int{}
	for _, d := range h.towns {
		d.mu.Lock()
		for reply, n := range d.replies {
			sum[reply] += n
		}
		d.mu.Unlock()
	}
	return sum
}

// gap is how long a fault kept answers away.
type gap struct {
	any  time.Duration // the longest time without an answer to anybody
	town time.Duration // the longest time that one town was without one
}

// gapSince measures from a moment on to now, for the towns of homes, or all.
func (h *hammer) gapSince(from time.Time, homes ...int) (g gap) {
	var all []time.Time
	longest := func(times []time.Time) (d time.Duration) {
		before := from
		for _, at := range append(times, time.Now()) {
			d = max(d, at.Sub(before))
			before = at
		}
		return d
	}
	for _, d := range h.townsAt(homes) {
		var times []time.Time
		for _, a := range d.answersSince(from) {
			times = append(times, a.at)
		}
		g.town = max(g.town, longest(times))
		all = append(all, times...)
	}
	slices.SortFunc(all, time.Time.Compare)
	g.any = longest(all)
	return g
}

// logGaps logs the gaps of all rounds as min / median / max.
func logGaps(t testing.TB, fault string, gaps []gap) {
	t.Helper()
	spread := func(of func(gap) time.Duration) string {
		var all []time.Duration
		for _, g := range gaps {
			all = append(all, of(g).Round(10*time.Millisecond))
		}
		slices.Sort(all)
		return fmt.Sprintf("%v / %v / %v", all[0], all[len(all)/2], all[len(all)-1])
	}
	t.Logf("%s, %d times: nobody was answered for %s; the worst town for %s", fault, len(gaps),
		spread(func(g gap) time.Duration { return g.any }),
		spread(func(g gap) time.Duration { return g.town }))
}

// driven is a town with one client, who knows its state and each right answer, whenever the server
// was killed. The client owns it, except what mu guards.
type driven struct {
	id, apply string
	world     string
	random    *rand.Rand
	home      int // which of the connections is the client's
	nc        *nats.Conn
	state     town.State   // after what was answered
	before    []town.State // that the town has left for good
	accepted  []keptAnswer
	verified  int   // of accepted
	open      *call // sent and not answered

	mu      sync.Mutex
	timed   []timed
	replies map[string]int // by kind
}

// keptAnswer is an accepted handoff. bytes is "" if its answer was lost with the server, or came too late.
type keptAnswer struct{ key, wire, resultID, bytes string }

// timed is when an answer came, and how long after its request.
type timed struct {
	at   time.Time
	took time.Duration
}

// call is a request with its right answer. again is the other right one, if a handoff or a put was
// carried out before the server was killed.
type call struct {
	kind        string
	verb        wire.Verb
	body        []byte
	want, again string
	key         string // of a handoff that is to be accepted
	resultID    string // of a replay: the one that it must name, if that is known
	after       town.State
}

// newDriven returns a town that is not created yet. It has something to fail at.
func newDriven(n int, apply string, seed uint64) *driven {
	id := fmt.Sprint("town ", n)
	d := drivenFrom(apply, rand.New(rand.NewPCG(seed, uint64(n))), town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, TownID: id, SideQuests: []town.SideQuest{},
		Projects: []town.Project{{ID: "bridge", Name: "Bridge", Status: town.Blocked}},
	}))
	d.open = d.putOf(d.state, "")
	return d
}

// drivenFrom returns a town that is in a state.
func drivenFrom(apply string, random *rand.Rand, state town.State) *driven {
	return &driven{id: state.Snapshot.TownID, apply: apply, world: wire.DefaultWorld, random: random,
		state: state, replies: map[string]int{}}
}

// next draws a request.
func (d *driven) next() *call {
	unmet := handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	switch n := d.random.IntN(100); {
	case n < 10 && len(d.accepted) > 0:
		k := d.accepted[d.random.IntN(len(d.accepted))]
		return &call{
			kind: "replay", verb: wire.Handoff, body: []byte(k.wire), want: "duplicate",
			resultID: k.resultID, after: d.state,
		}
	case n < 20 && len(d.before) > 0:
		at := d.before[d.random.IntN(len(d.before))]
		return d.handoff("stale", at, handoff.AdvanceProject, "bridge")
	case n < 30:
		return d.handoff("rejected", d.state, handoff.TalkToTownsfolk, "casual", unmet)
	case n < 40:
		return d.failing()
	case n < 50:
		return d.put()
	}
	return d.talk()
}

// talk returns a handoff that is executed.
func (d *driven) talk() *call {
	c := d.handoff("executed", d.state, handoff.TalkToTownsfolk, "casual")
	c.after = d.applied(c.body)
	return c
}

// applied returns the state that the rules make of a handoff.
func (d *driven) applied(body []byte) town.State {
	after, reason := town.DefaultRules().Apply(d.state.Snapshot, &parsed(body).Proposal)
	if reason != "" {
		panic(reason)
	}
	return after
}

// failing returns a handoff that is accepted and fails.
func (d *driven) failing() *call {
	return d.handoff("failed", d.state, handoff.AdvanceProject, "bridge")
}

func (d *driven) handoff(
	want string, at town.State, command handoff.ProposalType, argument string,
	pre ...handoff.Precondition,
) *call {
	body := made(handoff.Proposal{
		Type: command, TownID: d.id, Preconditions: pre,
		Priority:     d.random.Float64(), // makes another key of it
		Args:         map[string]string{command.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
	})
	c := &call{kind: want, verb: wire.Handoff, body: body, want: want, after: d.state}
	if want == "executed" || want == "failed" {
		c.again, c.key = "duplicate", parsed(body).IdempotencyKey
	}
	return c
}

func (d *driven) put() *call {
	changed := *d.state.Snapshot
	changed.Day++
	changed.Pressure.Hope = float64(d.random.IntN(1000)) / 1000
	return d.putOf(town.NewState(&changed), d.state.Hash)
}

func (d *driven) putOf(after town.State, expected string) *call {
	request, again := members{"snapshot": after.Snapshot}, "TOWN_EXISTS"
	if d.apply != "" {
		request["apply"] = d.apply
	}
	if expected != "" {
		request["expectedSnapshotHash"], again = expected, "SNAPSHOT_CONFLICT"
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	return &call{
		kind: "put", verb: wire.TownPut, body: body, want: "put", again: again, after: after,
	}
}

// step makes the open request, or the next one, and takes the answer. After another reply, or none,
// it pauses: the request may have been carried out, and asking again tells.
func (d *driven) step(ctx context.Context, patience time.Duration) error {
	first := d.open == nil
	if first {
		d.open = d.next()
	}
	c, sent := d.open, time.Now()
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := d.nc.RequestWithContext(patient, wire.Subject(d.world, c.verb), c.body)
	other := ""
	if err != nil {
		other = err.Error()
	} else if slices.Contains([]string{"429", "503"}, reply.Header.Get(wire.ErrorCodeHeader)) {
		other = codeOf(reply)
	}
	if other != "" {
		d.mu.Lock()
		d.replies[other]++
		d.mu.Unlock()
		select {
		case <-time.After(20 * time.Millisecond): // as the server asks for it
		case <-ctx.Done():
		}
		return nil
	}
	got, resultID, hash, err := answerOf(reply)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", err, reply.Data)
	case got != c.want && (first || got != c.again):
		return fmt.Errorf("%s at day %d, sent at %s, for the first time %t, got after %s: %s", c.kind,
			d.state.Epoch(), sent.Format(time.StampMilli), first, time.Since(sent), reply.Data)
	case c.resultID != "" && resultID != c.resultID:
		return fmt.Errorf("a replay of %s named %s", c.resultID, resultID)
	case c.want == "executed" && got == c.want && hash != c.after.Hash:
		return fmt.Errorf("the state is not the one of the rules: %s", reply.Data)
	}
	if c.after.Hash != d.state.Hash {
		d.before = append(d.before[max(0, len(d.before)-9):], d.state)
	}
	d.state, d.open = c.after, nil
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replies[c.kind]++
	if got != c.want {
		d.replies["done when asked again"]++
	}
	if c.key != "" {
		bytes := string(reply.Data)
		if got == c.again {
			bytes = ""
		}
		d.accepted = append(d.accepted, keptAnswer{c.key, string(c.body), resultID, bytes})
	}
	d.timed = append(d.timed, timed{time.Now(), time.Since(sent)})
	return nil
}

// answersSince returns when the town was answered, from a moment on.
func (d *driven) answersSince(from time.Time) []timed {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := slices.IndexFunc(d.timed, func(a timed) bool { return !a.at.Before(from) })
	if first < 0 {
		return nil
	}
	return slices.Clone(d.timed[first:])
}

// answerOf returns the kind of an answer: the status of a result, "put", or the code of an error;
// and the result and the state of the town that it names.
func answerOf(reply *nats.Msg) (kind, resultID, hash string, err error) {
	if reply.Header.Get(wire.ErrorCodeHeader) != "" {
		return codeOf(reply), "", "", nil
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	if err != nil {
		var at townNow
		err = json.Unmarshal(reply.Data, &at)
		return "put", "", at.SnapshotHash, err
	}
	resultID = result.ResultID
	if result.Status == handoff.Duplicate {
		resultID = *result.Evaluation.DuplicateCheck.DuplicateOf
	}
	if result.WorldState != nil {
		hash = *result.WorldState.SnapshotHash
	}
	return string(result.Status), resultID, hash, nil
}

// members are the members of a request.
type members map[string]any

// ask makes a request of the world main that must succeed. It asks again after 503, and if there is
// no answer: a server may be starting, or its index may be behind.
func ask[Reply any](t testing.TB, nc *nats.Conn, verb wire.Verb, request any) (reply Reply) {
	t.Helper()
	return askIn[Reply](t, nc, wire.DefaultWorld, verb, request)
}

// askIn is ask of any world.
func askIn[Reply any](
	t testing.TB, nc *nats.Conn, world string, verb wire.Verb, request any,
) (reply Reply) {
	t.Helper()
	body, isBytes := request.([]byte)
	if !isBytes {
		var err error
		body, err = json.Marshal(request)
		require.NoError(t, err)
	}
	eventually(t, time.Minute, string(verb), func(ctx context.Context) error {
		got, err := nc.RequestWithContext(ctx, wire.Subject(world, verb), body)
		if err != nil {
			return err
		}
		if code := got.Header.Get(wire.ErrorCodeHeader); code != "" {
			require.Equal(t, "503", code, "%s: %s", verb, got.Data)
			return errors.New(string(got.Data))
		}
		return json.Unmarshal(got.Data, &reply)
	})
	return reply
}

// eventually tries until there is no error.
func eventually(t testing.TB, within time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	for until := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) { // between two tries
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			require.NoError(t, err, "%s, within %s", what, within)
		}
	}
}

// insist sends a handoff until it gets a result, and asks again within a time: with a minute, the
// result is the one of the first request that the engine took.
func insist(t testing.TB, nc *nats.Conn, body []byte, within time.Duration) (r *handoff.Result) {
	t.Helper()
	eventually(t, time.Minute, "there is a result", func(context.Context) error {
		reply, err := nc.Request(wire.Subject(wire.DefaultWorld, wire.Handoff), body, within)
		if err != nil {
			return err
		}
		if reply.Header.Get(wire.ErrorCodeHeader) == "503" {
			return errors.New(string(reply.Data))
		}
		r, err = handoff.ParseResult(reply.Data, schemas.Limits{})
		require.NoError(t, err, "%s", reply.Data)
		return nil
	})
	return r
}

// codeOf returns the code of an error; empty if it is none.
func codeOf(reply *nats.Msg) string {
	var answer struct{ Error struct{ Code string } }
	_ = json.Unmarshal(reply.Data, &answer)
	return answer.Error.Code
}

// errorOf makes a request, and returns the code of its error; empty if it has none.
func errorOf(t testing.TB, nc *nats.Conn, verb wire.Verb, request []byte) string {
	t.Helper()
	reply, err := nc.Request(wire.Subject(wire.DefaultWorld, verb), request, time.Minute)
	require.NoError(t, err)
	return codeOf(reply)
}

// townNow is a reply of town.get.
type townNow struct {
	Snapshot                   json.RawMessage
	SnapshotHash, PendingRunID string
	DecisionEpoch              int64
}

func townOf(t testing.TB, nc *nats.Conn, id string) townNow {
	t.Helper()
	return ask[townNow](t, nc, wire.TownGet, members{"townId": id})
}

// receipt is a reply of result.get.
type receipt struct {
	RunID  string
	Result json.RawMessage
}

func receiptOf(t testing.TB, nc *nats.Conn, key string) receipt {
	t.Helper()
	return ask[receipt](t, nc, wire.ResultGet, members{"idempotencyKey": key})
}

// requireSound checks with fsck that the log is whole.
func requireSound(t testing.TB, nc *nats.Conn) *fsck.Report {
	t.Helper()
	return requireSoundIn(t, nc, wire.DefaultWorld)
}

func requireSoundIn(t testing.TB, nc *nats.Conn, world string) *fsck.Report {
	t.Helper()
	report, err := fsck.Run(context.Background(), operator(t, nc), world, fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	return report
}

// made returns the handoff of a proposal.
func made(p handoff.Proposal) []byte {
	p.ActorID, p.Reason = cmp.Or(p.ActorID, "mayor-1"), "Because."
	h, err := handoff.New(p)
	if err != nil {
		panic(err)
	}
	body, err := h.MarshalWire()
	if err != nil {
		panic(err)
	}
	return body
}

// parsed returns the handoff of a wire form.
func parsed(body []byte) *handoff.Handoff {
	h, err := handoff.Parse(body, schemas.Limits{})
	if err != nil {
		panic(err)
	}
	return h
}

// talk returns a handoff about a state of a town. Another priority makes another handoff.
func talk(townID, hash string, epoch int64, priority float64) []byte {
	return made(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, TownID: townID, Priority: priority,
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: hash, DecisionEpoch: epoch,
	})
}

// next returns a new handoff about the state that a town has now.
func next(t testing.TB, nc *nats.Conn, townID string) []byte {
	t.Helper()
	at := townOf(t, nc, townID)
	return talk(townID, at.SnapshotHash, at.DecisionEpoch, 0.5)
}
