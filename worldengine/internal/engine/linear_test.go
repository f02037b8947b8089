package engine_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

var (
	linearSeed = flag.Uint64("linear.seed", 0,
		"the seed of the first history; 0 for a random one")
	linearRounds = flag.Int("linear.rounds", 1, "how many histories are recorded and checked")
	linearCalls  = flag.Int("linear.calls", 40, "how many calls each client makes in a history")
)

// Sizes of a history.
const (
	linearTowns   = 4
	linearClients = 6
	// linearTimeout is a client's; it is longer than any answer of a live writer, on a busy machine too
	linearTimeout      = time.Minute
	linearUnanswered   = 16          // calls at most; a crash leaves one or two of each client
	linearCheckTimeout = time.Minute // of the check; a history takes it seconds
	linearTries        = 3           // to record a history that can be checked
	// linearDefectHistories bounds the histories until a defect shows; the rarest takes some ten on average.
	linearDefectHistories = 300
)

// linearRun records one history of several clients with a world's successive writers.
type linearRun struct {
	t                *testing.T
	world            string
	url              string
	start            time.Time
	plant            engine.Defect // of the engines; nil for none
	each             int           // how many calls each client makes
	patient          time.Duration // how long each waits for an answer
	nc               *nats.Conn    // of the game
	rivals           bool          // two writers serve at once, as if one did not know that it lost the lease
	mu               sync.Mutex
	writes           context.Context    // until the present writers answer nothing any more
	endWrites        context.CancelFunc // nil once they are about to
	waiting          atomic.Int64       // requests without an answer yet
	game             *nats.Subscription // of its plugin; nil while that is absent
	sent             []*handoff.Handoff
	awaitingApproval []*handoff.Handoff // for a person's approval
	views            []town.State
	history          []porcupine.Operation
}

// writer is a server whose connections the test owns: closing them is, for all others, its end at
// any point.
type writer struct {
	conns   []*nats.Conn
	service *service.Service
	worlds  map[*linearRun]*served
}

// served is a world that a writer serves.
type served struct {
	engine *engine.Engine
	world  *service.ServedWorld
}

func (r *linearRun) newWriter() *writer {
	w := &writer{worlds: map[*linearRun]*served{}}
	for range 3 {
		nc := natstest.Dial(r.t, r.url)
		w.conns = append(w.conns, nc)
	}
	w.service = service.New([]service.Listener{{Requests: w.conns[2], Replies: w.conns[0],
		Throttle: new(service.Throttle)}}, service.Config{Logger: slog.New(slog.DiscardHandler)})
	return w
}

// serve begins to serve the world of a run.
func (w *writer) serve(r *linearRun) {
	s := &served{}
	r.mu.Lock()
	if r.endWrites == nil { // else a rival serves
		r.writes, r.endWrites = context.WithCancel(r.t.Context())
	}
	r.mu.Unlock()
	var err error
	s.engine, err = engine.OpenDefective(r.t.Context(), w.conns[0], w.conns[1],
		engine.Config{
			World:  r.world,
			Logger: slog.New(slog.DiscardHandler), Settings: worldsettings.Settings{RequireApproval: string(linearApproval)},
			Retry: apply.RetryPolicy{
				Deadline: 200 * time.Millisecond, Attempts: 2, Backoff: 20 * time.Millisecond,
				Resend: 50 * time.Millisecond, Absence: apply.AbsenceFail,
			},
		}, r.plant)
	require.NoError(r.t, err)
	s.world, err = w.service.Open(service.WorldConfig{World: r.world, Engine: s.engine})
	require.NoError(r.t, err)
	w.worlds[r] = s
}

// handOver ends serving a world, and has another writer serve it, as a server does that hands a
// world over.
func (w *writer) handOver(r *linearRun, to *writer) {
	s := w.worlds[r]
	delete(w.worlds, r)
	ctx, cancel := context.WithTimeout(r.t.Context(), linearTimeout)
	defer cancel()
	require.NoError(r.t, s.world.Close(ctx))
	require.NoError(r.t, s.engine.Close(ctx))
	require.NoError(r.t, w.conns[0].Flush())
	for range 2000 { // until the answers have arrived; one that the writer was not sent has none
		if r.waiting.Load() == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	r.forgetWrites()()
	to.serve(r)
}

// crash ends the writer, and soon after that the waits for its answers, of which the last ones may
// still be on their way.
func (w *writer) crash() {
	for _, nc := range w.conns {
		nc.Close()
	}
	for r := range w.worlds { // with a rival, all that wait: nobody knows whom a request reached
		time.AfterFunc(20*time.Millisecond, r.forgetWrites())
	}
}

// forgetWrites returns what ends the waits for the present writers. The next writer has its own.
func (r *linearRun) forgetWrites() (end context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end = r.endWrites; end == nil { // the rival has ended before
		return func() {}
	}
	r.endWrites = nil
	return end
}

// record lets each client make its calls, while writers end and others begin.
func (r *linearRun) record(seed uint64, crashes int) []porcupine.Operation {
	writer := r.newWriter()
	writer.serve(r)
	if r.rivals {
		rival := r.newWriter()
		rival.serve(r)
		defer rival.crash()
	}
	wait := r.call(seed)
	for n := range crashes {
		r.await(n+1, crashes+1)
		writer.crash()
		writer = r.newWriter()
		writer.serve(r)
	}
	wait()
	writer.crash()
	return r.history
}

// call lets each client make its calls. The function that it returns waits for them.
func (r *linearRun) call(seed uint64) (wait func()) {
	r.gameComesOrLeaves() // comes
	clients := new(sync.WaitGroup)
	for id := range linearClients {
		c := &linearClient{linearRun: r, id: id, random: rand.New(rand.NewPCG(seed, uint64(id)))}
		c.nc = natstest.Dial(r.t, r.url)
		clients.Go(c.work)
	}
	return clients.Wait
}

// await waits until the clients have made a share of their calls.
func (r *linearRun) await(part, parts int) {
	require.Eventually(r.t, func() bool { return r.calls() >= linearClients*r.each*part/parts },
		5*time.Minute, time.Millisecond)
}

func (r *linearRun) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.history)
}

// fewUnanswered reports whether a history can be checked. A call without an answer may take effect
// at any later time, and the check tries all of them: many such calls, on a machine too busy to
// answer in time, take gigabytes.
func fewUnanswered(history []porcupine.Operation) bool {
	count := 0
	for _, o := range history {
		if o.Output == (linearAnswer{}) {
			count++
		}
	}
	return count <= linearUnanswered
}

// slowest returns how long the slowest answer of a history took.
func slowest(history []porcupine.Operation) (took time.Duration) {
	for _, o := range history {
		if o.Output != (linearAnswer{}) {
			took = max(took, time.Duration(o.Return-o.Call))
		}
	}
	return took
}

func newLinearRun(t *testing.T, each int) *linearRun {
	nc := natstest.Connect(t)
	return &linearRun{t: t, world: wire.DefaultWorld, url: nc.ConnectedUrl(), start: time.Now(), each: each,
		patient: linearTimeout, nc: nc}
}

// gameComesOrLeaves subscribes linearGame's plugin, which applies each command within 100 ms, or
// unsubscribes it.
func (r *linearRun) gameComesOrLeaves() {
	var err error
	if r.game != nil {
		err, r.game = r.game.Unsubscribe(), nil
	} else {
		subject := wire.ApplySubject(r.world, wire.TownToken(linearGame))
		r.game, err = r.nc.Subscribe(subject, func(msg *nats.Msg) {
			command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
			if err != nil {
				panic(err)
			}
			done := apply.Done(command)
			answer, err := done.MarshalWire()
			if err != nil {
				panic(err)
			}
			time.AfterFunc(rand.N(100*time.Millisecond), func() { _ = msg.Respond(answer) })
		})
	}
	if err != nil {
		panic(err)
	}
}

func linearFirstSeed() uint64 {
	if *linearSeed != 0 {
		return *linearSeed
	}
	return rand.Uint64()
}

// requireLinear records histories until one can be checked, requires that it has an order, and returns it.
func requireLinear(t *testing.T, seed uint64, record func() []porcupine.Operation) []porcupine.Operation {
	t.Helper()
	for range linearTries {
		history := record()
		if !fewUnanswered(history) {
			t.Logf("too many calls of a history of -linear.seed=%d had no answer: no defect is shown", seed)
			continue
		}
		verdict, info := porcupine.CheckOperationsVerbose(linearModel(), history, linearCheckTimeout)
		if verdict == porcupine.Ok {
			return history
		}
		if verdict == porcupine.Unknown {
			t.Logf("whether a history of -linear.seed=%d has an order is not known after %v: no defect is shown",
				seed, linearCheckTimeout)
			continue
		}
		path := filepath.Join(t.ArtifactDir(), fmt.Sprintf("history-%d.html", seed))
		require.NoError(t, porcupine.VisualizePath(linearModel(), info, path))
		t.Fatalf("a history of -linear.seed=%d is %s; -artifacts keeps %s", seed, verdict, path)
	}
	t.Fatalf("none of %d histories of -linear.seed=%d could be checked", linearTries, seed)
	return nil
}

// Each request of several clients takes effect at one moment between its sending and its answer,
// whenever a writer ends and the next one begins.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	first := linearFirstSeed()
	codes, calls := map[string]int{}, 0
	for round := range *linearRounds {
		seed := first + uint64(round)
		history := requireLinear(t, seed, func() []porcupine.Operation {
			r := newLinearRun(t, *linearCalls)
			r.rivals = round%4 > 1
			return r.record(seed, round%2)
		})
		for _, o := range history {
			code := o.Output.(linearAnswer).code
			if c := o.Input.(linearCall); c.decide != nil {
				code = "decision " + code
			} else if c.cancel != "" {
				code = fmt.Sprintf("cancellation, force %v: %s", c.force, code)
			} else if c.submitted {
				code += " submitted"
			} else if c.handoff != nil && c.town == linearGame {
				code += " of a game"
			} else if c.handoff != nil && c.handoff.Proposal.Type == linearApproval {
				code += " with approval"
			}
			codes[code]++
		}
		calls += len(history)
	}
	t.Logf("%d histories from -linear.seed=%d, %d calls", *linearRounds, first, calls)
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		t.Logf("%7d %s", codes[code], cmp.Or(code, "without an answer"))
	}
}

// Each defect of an engine is found within some short histories: the longer one is, the longer the
// search for an order takes.
func TestLinear_FindsDefects(t *testing.T) {
	t.Parallel()
	for name, plant := range engine.Defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, patience := linearFirstSeed(), time.Second
			var unknown [][]porcupine.Operation // not judged within the short time
			for seed := first; seed < first+linearDefectHistories; seed++ {
				r := newLinearRun(t, 25)
				r.plant = plant
				r.rivals = name == "ignores the guard of a town" // one writer alone has no races
				r.patient = patience                             // there are defects that leave calls without an answer
				history := r.record(seed, int(seed-first)%2)     // some show only behind a restart
				// A busy machine takes longer for an answer, and for the check.
				patience = max(patience, min(3*slowest(history), linearTimeout))
				switch porcupine.CheckOperationsTimeout(linearModel(), history, 2*patience) {
				case porcupine.Illegal:
					return
				case porcupine.Unknown:
					unknown = append(unknown, history)
				}
			}
			for _, history := range unknown {
				if porcupine.CheckOperationsTimeout(linearModel(), history,
					20*time.Second) == porcupine.Illegal {
					return
				}
			}
			t.Fatalf("%d histories from -linear.seed=%d show nothing", linearDefectHistories, first)
		})
	}
}
