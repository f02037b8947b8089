package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// members are the members of a request.
type members map[string]any

// ask makes a request of the world main that must succeed. It asks again after 503, and if there is
// no answer: a server may be starting, or its index may be behind.
func ask[Reply any](t testing.TB, nc *nats.Conn, verb wire.Verb, request any) (reply Reply) {
	t.Helper()
	body, isBytes := request.([]byte)
	if !isBytes {
		var err error
		body, err = json.Marshal(request)
		require.NoError(t, err)
	}
	eventually(t, time.Minute, string(verb), func(ctx context.Context) error {
		got, err := nc.RequestWithContext(ctx, wire.Subject(wire.DefaultWorld, verb), body)
		if err != nil {
			return err
		}
		if code := got.Header.Get(wire.ErrorCodeHeader); code != "" {
			require.Equal(t, "503", code, "%s: %s", verb, got.Data)
			return fmt.Errorf("%s: %s", code, got.Data)
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

// errorOf makes a request, and returns the code of its error; empty if it has none.
func errorOf(t testing.TB, nc *nats.Conn, verb wire.Verb, request []byte) string {
	t.Helper()
	reply, err := nc.Request(wire.Subject(wire.DefaultWorld, verb), request, time.Minute)
	require.NoError(t, err)
	var answer struct{ Error struct{ Code string } }
	require.NoError(t, json.Unmarshal(reply.Data, &answer))
	return answer.Error.Code
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
	report, err := fsck.Run(context.Background(), operator(t, nc), wire.DefaultWorld, fsck.Options{})
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

// hammer drives some towns with one handoff after another each, and knows their states: it is the
// model that a world is held against. A handoff without an answer is sent again as it is.
type hammer struct {
	t     testing.TB
	towns []*driven
	// patience is when a client gives an answer up and asks again.
	patience time.Duration
	stop     context.CancelFunc
	clients  sync.WaitGroup
}

// driven is one town of a hammer. Its client owns it, except what mu guards.
type driven struct {
	id    string
	home  int // which of the connections is the client's
	nc    *nats.Conn
	state town.State // after the last answer
	open  []byte     // a handoff that was sent and not answered

	mu       sync.Mutex
	answered []answered
	others   map[string]int // replies that were no answer
}

// answered is an answer. bytes is empty if the handoff was executed before it was sent again.
type answered struct {
	key, bytes string
	at         time.Time
}

func newHammer(t testing.TB, towns int) *hammer {
	h := &hammer{t: t, patience: 2 * time.Second}
	for i := range towns {
		id := fmt.Sprint("town ", i)
		h.towns = append(h.towns, &driven{id: id, others: map[string]int{},
			state: town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: id,
				SideQuests: []town.SideQuest{}, Projects: []town.Project{}})})
	}
	return h
}

// create creates the towns, and gives each client one of the connections.
func (h *hammer) create(clients ...*nats.Conn) {
	h.t.Helper()
	h.moveTo(clients...)
	for _, d := range h.towns {
		ask[townNow](h.t, d.nc, wire.TownPut, members{"snapshot": json.RawMessage(d.state.Canonical)})
	}
}

// moveTo gives each client another connection; none may be at work.
func (h *hammer) moveTo(clients ...*nats.Conn) {
	for i, d := range h.towns {
		d.home = i % len(clients)
		d.nc = clients[d.home]
	}
}

// start drives every town until end.
func (h *hammer) start() {
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.t.Cleanup(h.end)
	for _, d := range h.towns {
		h.clients.Go(func() {
			for ctx.Err() == nil {
				other := h.step(d)
				if other == "" {
					continue
				}
				d.mu.Lock()
				d.others[other]++
				d.mu.Unlock()
				select {
				case <-time.After(25 * time.Millisecond): // as a client that was told 503
				case <-ctx.Done():
				}
			}
		})
	}
}

func (h *hammer) end() {
	h.stop()
	h.clients.Wait()
}

// step sends the town's open handoff, or its next one, and takes the answer. It returns the reply
// that came instead of one.
func (h *hammer) step(d *driven) string {
	if d.open == nil {
		d.open = d.next()
	}
	reply, err := d.nc.Request(wire.Subject(wire.DefaultWorld, wire.Handoff), d.open, h.patience)
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, nats.ErrConnectionClosed):
		return err.Error()
	case err != nil:
		h.t.Errorf("%s: %v", d.id, err)
		return err.Error()
	case reply.Header.Get(wire.ErrorCodeHeader) == "503":
		var body struct{ Error struct{ Code string } }
		_ = json.Unmarshal(reply.Data, &body)
		return "503 " + body.Error.Code
	}
	if err := d.take(reply.Data); err != nil {
		h.t.Error(err)
		return "wrong"
	}
	return ""
}

// take checks an answer against the model: whatever happened before, the state must move on by
// exactly this handoff, once.
func (d *driven) take(data []byte) error {
	result, err := handoff.ParseResult(data, schemas.Limits{})
	if err != nil {
		return fmt.Errorf("%s: %w in %s", d.id, err, data)
	}
	after := d.after(d.open)
	a := answered{key: result.IdempotencyKey, at: time.Now()}
	switch {
	case result.Status == handoff.Executed && *result.WorldState.SnapshotHash == after.Hash:
		a.bytes = string(data)
	case result.Status != handoff.Duplicate: // a duplicate was executed, and its answer got lost
		return fmt.Errorf("%s: at epoch %d answered %s", d.id, d.state.Epoch(), data)
	}
	d.state, d.open = after, nil
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answered = append(d.answered, a)
	return nil
}

// next returns a handoff about the town's state.
func (d *driven) next() []byte {
	return talk(d.id, d.state.Hash, d.state.Epoch(), 0.5)
}

// after returns the state that the rules make of a handoff.
func (d *driven) after(body []byte) town.State {
	after, reason := town.DefaultRules().Apply(d.state.Snapshot, &parsed(body).Proposal)
	if reason != "" {
		panic(reason)
	}
	return after
}

// times returns when the town was answered, from a moment on.
func (d *driven) times(from time.Time) (all []time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.answered {
		if !a.at.Before(from) {
			all = append(all, a.at)
		}
	}
	return all
}

// answers returns how many handoffs were answered.
func (h *hammer) answers() (n int) {
	for _, d := range h.towns {
		n += len(d.times(time.Time{}))
	}
	return n
}

// waitMore waits until there are more answers, and returns how long that took.
func (h *hammer) waitMore(more int) time.Duration {
	h.t.Helper()
	began, before := time.Now(), h.answers()
	for h.answers() < before+more {
		require.Less(h.t, time.Since(began), time.Minute, "%d answers, and %v", h.answers(), h.others())
		time.Sleep(time.Millisecond) // between two looks
	}
	return time.Since(began)
}

// others counts the replies that were no answers, of all towns.
func (h *hammer) others() map[string]int {
	sum := map[string]int{}
	for _, d := range h.towns {
		d.mu.Lock()
		for reply, n := range d.others {
			sum[reply] += n
		}
		d.mu.Unlock()
	}
	return sum
}

// verify holds the world against the model, when no client is at work: the state of every town,
// every answer that was ever given, and the log. others is how many handoffs somebody else had
// accepted.
func (h *hammer) verify(nc *nats.Conn, others int) {
	h.t.Helper()
	for _, d := range h.towns {
		d.nc = nc
		for until := time.Now().Add(30 * time.Second); d.open != nil && h.step(d) != ""; {
			require.True(h.t, time.Now().Before(until), "%s is not answered: %v", d.id, d.others)
		}
		require.Equal(h.t, d.state.Hash, townOf(h.t, nc, d.id).SnapshotHash, d.id)
		for _, a := range d.answered {
			kept := receiptOf(h.t, nc, a.key).Result
			require.NotEmpty(h.t, kept)
			if a.bytes != "" {
				require.Equal(h.t, a.bytes, string(kept), "an answer was lost")
			}
		}
	}
	require.EqualValues(h.t, h.answers()+others, requireSound(h.t, nc).Counts.Accepted)
}

// game is a game server whose plugin keeps to the protocol: it remembers the commands that it has
// applied. It refuses the first attempt, so that there are two.
type game struct {
	mu      sync.Mutex
	changes map[string]int // by applyId, how often the game was changed for it
	silent  string         // a town whose commands get no answer
	// hosts are the subscriptions that play made; only the test's goroutine uses them.
	hosts []*nats.Subscription
}

func newGame() *game { return &game{changes: map[string]int{}} }

// play hosts all towns on nc.
func (g *game) play(t testing.TB, nc *nats.Conn) {
	t.Helper()
	sub, err := nc.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), func(msg *nats.Msg) {
		c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			t.Errorf("not a command-apply.v1: %v", err)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.TownID == g.silent {
			return
		}
		a := apply.Refuse(c, "CHUNK_NOT_LOADED", "Nobody is near.", true)
		if c.LogicalAttemptID > 1 {
			a = apply.Done(c)
			if g.changes[c.ApplyID] == 0 {
				g.changes[c.ApplyID]++
			}
		}
		if data, err := a.MarshalWire(); err == nil {
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	g.hosts = append(g.hosts, sub)
}

// playAlone is play for a game that has one server: it fails if another subscription is still
// there, which would get and answer each command a second time.
func (g *game) playAlone(t testing.TB, nc *nats.Conn) {
	t.Helper()
	for _, s := range g.hosts {
		require.False(t, s.IsValid(), "the game would get each command twice")
	}
	g.hosts = nil
	g.play(t, nc)
}

// leave ends the game on nc. When it returns, NATS has no subscription of it there, and the engine
// can no longer send a command to it.
func (g *game) leave(t testing.TB, nc *nats.Conn) {
	t.Helper()
	for _, s := range g.hosts {
		require.NoError(t, s.Unsubscribe())
	}
	g.hosts = nil
	require.NoError(t, nc.Flush())
	nc.Close()
}

// gap is how long a fault kept answers away.
type gap struct {
	any  time.Duration // the longest time without an answer to anybody
	town time.Duration // the longest time that one town was without one
}

// everywhere are the homes of all towns of a cluster.
var everywhere = []int{0, 1, 2}

// gapSince measures from a moment on to now, for the towns whose client is at home at one of homes.
func (h *hammer) gapSince(from time.Time, homes ...int) gap {
	var all []time.Time
	var g gap
	now := time.Now()
	for _, d := range h.towns {
		if slices.Contains(homes, d.home) {
			times := d.times(from)
			g.town = max(g.town, longest(from, times, now))
			all = append(all, times...)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	g.any = longest(from, all, now)
	return g
}

func longest(from time.Time, times []time.Time, to time.Time) (d time.Duration) {
	for _, t := range append(times, to) {
		d = max(d, t.Sub(from))
		from = t
	}
	return d
}

// waitEach waits until every town of homes has some more answers: service is back for everybody.
func (h *hammer) waitEach(more int, homes ...int) {
	h.t.Helper()
	h.waitTowns(slices.DeleteFunc(slices.Clone(h.towns), func(d *driven) bool {
		return !slices.Contains(homes, d.home)
	}), more)
}

// waitTowns waits until each of some towns has some more answers.
func (h *hammer) waitTowns(towns []*driven, more int) {
	h.t.Helper()
	from := time.Now()
	eventually(h.t, 2*time.Minute, "every town is answered", func(context.Context) error {
		for _, d := range towns {
			if n := len(d.times(from)); n < more {
				return fmt.Errorf("%s has %d new answers; %v", d.id, n, h.others())
			}
		}
		return nil
	})
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
