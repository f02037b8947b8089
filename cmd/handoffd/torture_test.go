package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/index/indextest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

var (
	tortureKills = flag.Int("torture.kills", 2,
		"how often TestTorture kills the server, for each way to apply commands")
	tortureTowns = flag.Int("torture.towns", 0,
		"how many towns it drives at once; 0 for 8, and for 16 if -torture.kills or "+
			"-torture.slow asks for more than the default")
	tortureSeed = flag.Uint64("torture.seed", 0, "the seed of its clients' draws; 0 for a random one")
)

// torture is a server that is killed again and again under load, and the towns with their models.
type torture struct {
	t     *testing.T
	seed  uint64
	apply string
	args  []string
	game  *game
	towns []*torturedTown
	kills map[string]int
	// patience is how long the towns may take to come to an end.
	patience time.Duration
	// stepped gives the server a clock that is set at any moment, another one at each of its starts.
	stepped bool
	starts  uint64
	// The server of the rounds, and its file of killAt.
	running *program
	nc      *nats.Conn
	file    string
	// older is the file of the index as it was after the kill before.
	older []byte
	// first is after how many answers at least the server is killed at random.
	first int
}

// A server that is killed at any moment, hundreds of times, loses no answer, carries out nothing
// twice, and starts again by itself, whatever the state of its index's file: after each kill every
// town, its keys and the log are held against a model. `-torture.kills=300 -timeout 1h` is the long
// form.
func TestTorture(t *testing.T) {
	t.Parallel()
	for apply, points := range map[string][]failpoint.Point{
		"local":  {failpoint.Judged, failpoint.Committed},
		"plugin": failpoint.Points(),
	} {
		t.Run(apply, func(t *testing.T) {
			t.Parallel()
			r := newTorture(t, apply)
			modes := []string{"always", "interval"}
			if apply == "plugin" { // so that two kills of each have all
				slices.Reverse(modes)
			}
			r.start(modes[0])
			for kill := range *tortureKills {
				next := kill + 1
				mode := modes[(next+next/2)%2] // each before kills at random and at points
				if kill%2 == 0 {
					r.round(mode, "")
				} else {
					r.round(mode, points[kill/2%len(points)])
				}
			}
			r.stop(r.running, r.nc)
			r.report()
		})
	}
}

// isLong reports whether more is asked for than the ordinary tests do.
func isLong() bool { return *tortureKills > 2 || *tortureSlow > 0 }

func drivenTowns() int {
	if *tortureTowns == 0 && isLong() {
		return 16
	}
	return cmp.Or(*tortureTowns, 8)
}

// mostAnswers is after how many answers at most a server is killed at random.
func mostAnswers() int {
	if isLong() {
		return 400
	}
	return 100
}

func newTorture(t *testing.T, apply string) *torture {
	r := &torture{
		t: t, seed: *tortureSeed, apply: apply, kills: map[string]int{},
		patience: time.Minute, first: 1, args: onData(t.TempDir(), quickly[2:]...),
		game: newGame(), file: filepath.Join(t.TempDir(), "killAt"),
	}
	if r.seed == 0 {
		r.seed = rand.Uint64()
	}
	for n := range drivenTowns() {
		d := newTorturedTown(n, apply, r.seed)
		d.open = d.putOf(d.state, "")
		r.towns = append(r.towns, d)
	}
	return r
}

// serve starts the server with its game.
func (r *torture) serve(env []string, mode string) (*program, *nats.Conn) {
	r.t.Helper()
	r.starts++
	if r.stepped {
		env = append(env, steps(r.seed+r.starts))
	}
	args := r.args
	if args[0] != "--nats" { // whose files are not handoffd's
		args = append(slices.Clip(args), "--sync", mode)
	}
	p := launch(r.t, env, args...)
	nc := p.connect()
	r.game.play(r.t, nc)
	return p, nc
}

// round lets the clients work until the server is killed, at a point or at random, starts it again
// with a mode of --sync, and checks its world.
func (r *torture) round(mode string, point failpoint.Point) {
	r.t.Helper()
	random := rand.New(rand.NewPCG(r.seed, uint64(len(r.kills))+uint64(r.total())))
	p, nc, how := r.running, r.nc, "at random"
	if point != "" {
		how = "at " + string(point)
		killWhen(r.t, r.file, point, random.IntN(30))
	}
	at := int64(r.first + random.IntN(mostAnswers()))
	var answers atomic.Int64
	r.work(p, nc, func(*torturedTown) bool {
		if answers.Add(1) == at && point == "" {
			_ = p.cmd.Process.Signal(syscall.SIGKILL)
		}
		return true
	})
	<-p.ended
	nc.Close()
	require.NoError(r.t, os.RemoveAll(r.file))
	r.kills[how+r.harmIndex(random.IntN(4))]++
	r.start(mode)
	r.check(r.running, r.nc)
}

// index is the file of the index.
func (r *torture) index() string { return filepath.Join(r.args[3], "index", "main", "rows") }

// harmIndex harms the file of the index of a server that is gone, in one of four ways, and returns
// how.
func (r *torture) harmIndex(way int) string {
	r.t.Helper()
	if r.args[0] == "--nats" {
		return ""
	}
	now, err := os.ReadFile(r.index())
	if errors.Is(err, fs.ErrNotExist) {
		return ", before there was an index"
	}
	require.NoError(r.t, err)
	older := r.older
	r.older = now
	switch way {
	case 0:
		require.NoError(r.t, os.Remove(r.index()))
		return ", its index deleted"
	case 1:
		require.NoError(r.t, os.Truncate(r.index(), int64(len(now)*2/3)))
		return ", its index cut"
	case 2:
		require.NoError(r.t, os.WriteFile(r.index(), older, 0o600))
		return ", its index an older one"
	}
	return ""
}

// start starts the server of the rounds.
func (r *torture) start(mode string) {
	r.t.Helper()
	r.running, r.nc = r.serve([]string{killAt + "=" + r.file}, mode)
}

// work drives all towns until the server is gone, or more says no after a step.
func (r *torture) work(p *program, nc *nats.Conn, more func(*torturedTown) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	go func() {
		select {
		case <-p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	problems := make(chan error, len(r.towns))
	var clients sync.WaitGroup
	for _, d := range r.towns {
		clients.Go(func() {
			err := d.step(ctx, nc)
			for err == nil && more(d) {
				err = d.step(ctx, nc)
			}
			problems <- err
		})
	}
	clients.Wait()
	close(problems)
	for err := range problems {
		if err != nil && !errors.Is(err, errGone) {
			r.t.Fatalf("-torture.seed=%d: %v", r.seed, err)
		}
	}
	if ctx.Err() == context.DeadlineExceeded {
		r.report()
		for _, d := range r.towns {
			if d.open != nil {
				r.t.Logf("%s: %s at day %d is open: %s", d.id, d.open.kind,
					d.state.Epoch(), d.waits)
			}
		}
		p.end(syscall.SIGQUIT) // prints its goroutines
		r.t.Fatalf("-torture.seed=%d: the towns do not come to an end: %s", r.seed, p.stderr)
	}
}

// verify starts the server, checks its world, and ends it in order.
func (r *torture) verify() {
	r.t.Helper()
	p, nc := r.serve(nil, "interval")
	r.check(p, nc)
	r.stop(p, nc)
}

// stop ends a server in order.
func (r *torture) stop(p *program, nc *nats.Conn) {
	r.t.Helper()
	nc.Close()
	p.stop()
}

// check has the open calls answered by a server, and holds everything against the model.
func (r *torture) check(p *program, nc *nats.Conn) {
	r.t.Helper()
	r.work(p, nc, func(d *torturedTown) bool { return d.open != nil })
	for _, d := range r.towns {
		require.Nil(r.t, d.open, "-torture.seed=%d: %s", r.seed, d.id)
		r.verifyTown(nc, d)
	}
	requireSound(r.t, nc)
	if r.args[0] != "--nats" { // a server that joins a NATS keeps its index in memory
		indextest.RequireRebuilt(r.t, operator(r.t, nc), wire.DefaultWorld, filepath.Dir(r.index()))
	}
	if r.apply == "plugin" {
		r.verifyGame()
	}
}

func (r *torture) verifyTown(nc *nats.Conn, d *torturedTown) {
	r.t.Helper()
	at := townOf(r.t, nc, d.id)
	require.Equal(r.t, d.state.Hash, at.SnapshotHash, "-torture.seed=%d: %s", r.seed, d.id)
	require.Empty(r.t, at.PendingRunID)
	for _, k := range d.accepted[max(0, len(d.accepted)-50):] {
		kept := string(receiptOf(r.t, nc, k.key).Result)
		if k.bytes != "" {
			require.Equal(r.t, k.bytes, kept, "-torture.seed=%d: an answer was lost", r.seed)
		}
		require.Contains(r.t, kept, k.resultID)
	}
}

// verifyGame checks that the game was changed exactly once for each executed handoff, and for no
// other.
func (r *torture) verifyGame() {
	r.t.Helper()
	executed := 0
	for _, d := range r.towns {
		executed += d.answers["executed"]
	}
	r.game.mu.Lock()
	defer r.game.mu.Unlock()
	require.Len(r.t, r.game.changes, executed, "-torture.seed=%d", r.seed)
}

func (r *torture) total() (kills int) {
	for _, n := range r.kills {
		kills += n
	}
	return kills
}

// answered returns how many calls the clients had answered.
func (r *torture) answered() (answers int) {
	for _, d := range r.towns {
		for _, n := range d.answers {
			answers += n
		}
	}
	return answers
}

// report logs the kills and the answers.
func (r *torture) report() {
	answers := map[string]int{}
	for _, d := range r.towns {
		for kind, n := range d.answers {
			answers[kind] += n
		}
	}
	r.t.Logf("-torture.seed=%d: %d times: %v; answers: %v", r.seed, r.total(), r.kills, answers)
}

// torturedTown is a town with one client, who knows its state and each right answer, whenever the
// server was killed.
type torturedTown struct {
	id, apply string
	random    *rand.Rand
	state     town.State   // after what was answered
	before    []town.State // that the town has left for good
	accepted  []keptAnswer
	open      *torturedCall // sent and not answered
	waits     string        // the last reply that was no answer
	answers   map[string]int
}

// keptAnswer is an accepted handoff. bytes is "" if its answer was lost with the server.
type keptAnswer struct{ key, wire, resultID, bytes string }

// torturedCall is a request with its right answer. again is the other right one, if a handoff or a
// put was carried out before the server was killed.
type torturedCall struct {
	kind        string
	verb        wire.Verb
	body        []byte
	want, again string
	key         string // of a handoff that is to be accepted
	resultID    string // of a replay: the one that it must name, if that is known
	after       town.State
}

func newTorturedTown(n int, apply string, seed uint64) *torturedTown {
	id := fmt.Sprint("town ", n)
	return &torturedTown{
		id: id, apply: apply, random: rand.New(rand.NewPCG(seed, uint64(n))),
		answers: map[string]int{}, state: town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: id, SideQuests: []town.SideQuest{},
			Projects: []town.Project{{ID: "bridge", Name: "Bridge", Status: town.Blocked}},
		}),
	}
}

// next draws a call.
func (d *torturedTown) next() *torturedCall {
	unmet := handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}
	switch n := d.random.IntN(100); {
	case n < 10 && len(d.accepted) > 0:
		k := d.accepted[d.random.IntN(len(d.accepted))]
		return &torturedCall{
			kind: "replay", verb: wire.Handoff, body: []byte(k.wire), want: "duplicate",
			resultID: k.resultID, after: d.state,
		}
	case n < 20 && len(d.before) > 0:
		at := d.before[d.random.IntN(len(d.before))]
		return d.handoff("stale", "stale", at, d.state, handoff.AdvanceProject, "bridge")
	case n < 30:
		return d.handoff("rejected", "rejected", d.state, d.state,
			handoff.TalkToTownsfolk, "casual", unmet)
	case n < 40:
		return d.handoff("failed", "failed", d.state, d.state, handoff.AdvanceProject, "bridge")
	case n < 50:
		return d.put()
	}
	c := d.handoff("executed", "executed", d.state, d.state, handoff.TalkToTownsfolk, "casual")
	c.after, _ = town.DefaultRules().Apply(d.state.Snapshot, &parsed(c.body).Proposal)
	return c
}

func (d *torturedTown) handoff(
	kind, want string, at, after town.State, command handoff.ProposalType, argument string,
	pre ...handoff.Precondition,
) *torturedCall {
	body := made(handoff.Proposal{
		Type: command, TownID: d.id, Preconditions: pre,
		Priority:     float64(d.random.IntN(1_000_000)) / 1_000_000, // makes another key of it
		Args:         map[string]string{command.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
	})
	c := &torturedCall{kind: kind, verb: wire.Handoff, body: body, want: want, after: after}
	if want == "executed" || want == "failed" {
		c.again, c.key = "duplicate", parsed(body).IdempotencyKey
	}
	return c
}

func (d *torturedTown) put() *torturedCall {
	changed := *d.state.Snapshot
	changed.Day++
	changed.Pressure.Hope = float64(d.random.IntN(1000)) / 1000
	after := town.NewState(&changed)
	return d.putOf(after, d.state.Hash)
}

func (d *torturedTown) putOf(after town.State, expected string) *torturedCall {
	request := map[string]any{"snapshot": after.Snapshot, "apply": d.apply}
	again := "TOWN_EXISTS"
	if expected != "" {
		request["expectedSnapshotHash"], again = expected, "SNAPSHOT_CONFLICT"
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	return &torturedCall{
		kind: "put", verb: wire.TownPut, body: body, want: "put", again: again, after: after,
	}
}

// errGone: the server gave no answer.
var errGone = errors.New("no answer")

// step makes the open call, or the next one, and takes the answer.
func (d *torturedTown) step(ctx context.Context, nc *nats.Conn) error {
	first := d.open == nil
	if first {
		d.open = d.next()
	}
	c := d.open
	patient, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	reply, err := nc.RequestWithContext(patient, wire.Subject("main", c.verb), c.body)
	if ctx.Err() == nil &&
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders)) {
		d.answers["asked again without an answer"]++
		d.waits = err.Error()
		return pauseBetween(ctx)
	}
	if err != nil {
		return errGone
	}
	got, answer, err := readTortured(reply)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w: %s", d.id, err, reply.Data)
	case got == "503": // it may have been carried out: asking again tells
		d.waits = string(reply.Data)
		return pauseBetween(ctx)
	case got != c.want && (first || got != c.again):
		return fmt.Errorf("%s: %s at day %d got %s", d.id, c.kind, d.state.Epoch(), reply.Data)
	case c.resultID != "" && answer.resultID != c.resultID:
		return fmt.Errorf("%s: a replay of %s named %s", d.id, c.resultID, answer.resultID)
	case c.want == "executed" && got == c.want && answer.state != c.after.Hash:
		return fmt.Errorf("%s: the state is not the one of the rules: %s", d.id, reply.Data)
	}
	d.take(c, got, answer, string(reply.Data))
	return nil
}

// pauseBetween is the pause between two tries, as the server asks for it.
func pauseBetween(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return errGone
	}
}

func (d *torturedTown) take(c *torturedCall, got string, answer torturedAnswer, bytes string) {
	if c.key != "" {
		if got == c.again {
			bytes = ""
		}
		d.accepted = append(d.accepted, keptAnswer{c.key, string(c.body), answer.resultID, bytes})
	}
	if c.after.Hash != d.state.Hash {
		d.before = append(d.before[max(0, len(d.before)-9):], d.state)
	}
	if got != c.want {
		d.answers["done when asked again"]++
	}
	d.state, d.open = c.after, nil
	d.answers[c.kind]++
}

// torturedAnswer is the part of an answer that is checked.
type torturedAnswer struct{ resultID, state string }

// readTortured returns the kind of an answer: a status, "put", "503" for all that may be tried again,
// or an error code.
func readTortured(reply *nats.Msg) (string, torturedAnswer, error) {
	if status := reply.Header.Get(wire.ErrorCodeHeader); status != "" {
		var failed struct{ Error struct{ Code string } }
		err := json.Unmarshal(reply.Data, &failed)
		if slices.Contains([]string{"429", "503"}, status) {
			return "503", torturedAnswer{}, err
		}
		return failed.Error.Code, torturedAnswer{}, err
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	if err != nil {
		var at struct{ SnapshotHash string }
		err = json.Unmarshal(reply.Data, &at)
		return "put", torturedAnswer{state: at.SnapshotHash}, err
	}
	answer := torturedAnswer{resultID: result.ResultID}
	if result.Status == handoff.Duplicate {
		answer.resultID = *result.Evaluation.DuplicateCheck.DuplicateOf
	}
	if result.WorldState != nil {
		answer.state = *result.WorldState.SnapshotHash
	}
	return string(result.Status), answer, nil
}
