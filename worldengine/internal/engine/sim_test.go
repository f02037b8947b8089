package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// sim is a world in which a seed decides everything: which engine goes on when, lost messages,
// kills, and the game's answers. The engines and their indexes are real; their log, plugins and
// clocks are simulated.
type sim struct {
	seed  uint64
	rng   *rand.Rand
	quiet bool // no more faults
	// alone is a planted bug: an index treats others' messages as missing.
	alone bool
	// skips is another: an index omits each fifth message of others.
	skips bool
	// believes is another: an index takes the end of the log as read, though a replica that was behind
	// has delivered less.
	believes bool
	// forgets is another: engines discard records that a town needs.
	forgets bool
	// noAlerts is another: no alert is stored.
	noAlerts bool
	// forceful makes operators always cancel by force.
	forceful bool
	trace    func(format string, args ...any)

	// direct gives each operation its turn at once, of which fault may lose one; see TestStories.
	direct atomic.Bool
	fault  func(operation string) error // one of simFaults, or nil
	turns  sync.Mutex

	mu      sync.Mutex
	waiting []*simOp // sorted by what they are, since goroutines come in any order
	found   []string // what must not be

	log      simLog
	engines  []*simEngine
	game     simGame
	clients  []*simClient
	sent     map[string]*handoff.Handoff // by handoffId and snapshotHash
	operator simOperator
	// alerted are the runs with a stored alert, and the log's end then.
	alerted map[string]int
	ids     int
	started int // engines
	full    int // answers HISTORY_FULL
}

// simEngine is an engine and its process.
type simEngine struct {
	*Engine
	sim    *sim
	number int
	drawn  atomic.Int64
	dead   atomic.Bool
	alive  context.Context // until kill
	kill   context.CancelFunc
}

// draw returns an engine's random part of a pause, different each time: if two timers ended at
// once, the order of their goroutines would be undefined.
func (e *simEngine) draw(below time.Duration) time.Duration {
	return below * time.Duration(1+(int64(e.number)+11*e.drawn.Add(1))%101) / 103
}

// now is the clock of an engine's machine, which is an hour off for two of three.
func (e *simEngine) now() time.Time {
	return time.Now().Add(time.Duration(e.number%3-1) * time.Hour)
}

const simTowns = 3

// fails reports whether the seed's game is absent at first, and not waited for: many runs fail then,
// and can be retried.
func (s *sim) fails() bool { return s.seed%4 == 1 }

// short reports whether the seed's log keeps few messages, and most handoffs fail in one town.
func (s *sim) short() bool { return s.seed%10 == 9 }

// simHistoryPerTown is the history of such a log.
const simHistoryPerTown = 20

// workers returns the number of towns that an engine of the seed works on at once. Only with one is
// a replay the same step by step: two turns that begin at the same instant draw ids in either
// order.
func (s *sim) workers() int {
	if s.seed%2 == 0 {
		return 1
	}
	return 4
}

func newSim(seed uint64) *sim {
	s := &sim{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), trace: func(string, ...any) {},
		sent:    map[string]*handoff.Handoff{},
		alerted: map[string]int{},
	}
	s.log.window = map[string]uint64{}
	if s.short() {
		s.log.keeps, s.log.history = simHistoryPerTown, map[string][]*simMessage{}
	}
	s.operator.sim = s
	s.game = simGame{sim: s, isAbsent: s.fails(), changes: map[string]int{},
		definite: map[string]apply.GameAnswer{}, had: map[string]bool{}}
	for i := range simTowns {
		state := town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: fmt.Sprint("town ", i),
			SideQuests: []town.SideQuest{{ID: "q", Title: "Q"}},
			Pressure:   town.Pressure{Scarcity: 1},
			Projects: []town.Project{{ID: "blocked", Name: "B", Status: town.Blocked},
				{ID: "wall", Name: "W", Status: town.Active}},
		})
		after := machine.Town{State: state}
		if i > 0 {
			after.Binding = apply.Plugin
		}
		rec := machine.Record{Kind: machine.KindPut, TownID: state.Snapshot.TownID}
		msg, err := records.Encode(&rec, layout.LogSubject("main", wire.TownToken(state.Snapshot.TownID)),
			&after)
		if err != nil {
			panic(err)
		}
		if _, err := s.log.store(msg, time.Now()); err != nil {
			panic(err)
		}
	}
	for i := range 4 {
		s.clients = append(s.clients, &simClient{sim: s, name: fmt.Sprint("client ", i)})
	}
	s.engines = []*simEngine{s.start()}
	return s
}

// start starts an engine as Open does.
func (s *sim) start() *simEngine {
	s.started++
	process := &simEngine{sim: s, number: s.started}
	ctx, cancel := context.WithCancel(context.Background())
	process.alive, process.kill = ctx, cancel
	absent := apply.AbsenceFail
	if s.seed%2 == 0 {
		absent = apply.AbsenceWait
	}
	deadline, attempts := 3*time.Second, int64(2)
	if s.fails() {
		deadline, attempts = 200*time.Millisecond, 1
	}
	config, err := Config{
		Now: process.now, NewID: s.id, jitter: process.draw, Logger: slog.New(slog.DiscardHandler), Bounds: Bounds{Workers: s.workers()},
		PauseTimeout: 400 * time.Millisecond, Settings: worldsettings.Settings{RequireApproval: s.policy().String()},
		Retry: apply.RetryPolicy{
			Deadline: deadline, Attempts: attempts, Backoff: 50 * time.Millisecond,
			Resend: 300 * time.Millisecond, Absence: absent,
		},
	}.withDefaults()
	if err != nil {
		panic(err)
	}
	log := &records.Log{Log: &commitlog.Log{
		World: "main", Store: &simStore{s, process}, MaxPayload: func() int64 { return 1 << 20 },
		Jitter: config.jitter, Now: config.Now, FixedHistory: int64(s.log.keeps),
	}, Retention: config.Storage.AppendedRetention}
	o := &storage{
		config: config, log: log, index: &samples.SampledIndex{Index: s.openIndex(process)},
		alerts: alerts.New(nil, config.alerts("")),
	}
	e := assemble(context.WithValue(ctx, simAsker{}, "in its turn"), o, &simRouter{s, process}, simAlerts{o.alerts, process})
	e.worldPause.Set(s.worldPause())
	e.finalRecords.Runs = simRuns{e.runs}
	if s.forgets {
		e.stepper.RequiredHistory = nil
	}
	process.Engine = e
	go e.background.follower.followLog(context.WithValue(process.alive, simAsker{}, "resumes"))
	go e.background.reaper.reapWaiting(context.WithValue(process.alive, simAsker{}, "reaps"))
	return process
}

// simRuns marks a read of a run with it, since several are read at once.
type simRuns struct{ *runs.Reader }

func (r simRuns) Get(ctx context.Context, runID string) (runevents.Snapshot, error) {
	return r.Reader.Get(withRunID(ctx, runID), runID)
}

func (r simRuns) EndedAt(ctx context.Context, runID string) (uint64, error) {
	return r.Reader.EndedAt(withRunID(ctx, runID), runID)
}

func withRunID(ctx context.Context, runID string) context.Context {
	asker, _ := ctx.Value(simAsker{}).(string)
	return context.WithValue(ctx, simAsker{}, asker+" about run "+runID)
}

// id draws a UUID v4 that the seed decides.
func (s *sim) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	id := uuid.UUID{6: 0x40, 8: 0x80, 12: byte(s.ids >> 24), 13: byte(s.ids >> 16),
		14: byte(s.ids >> 8), 15: byte(s.ids)}
	return id.String()
}

// wait puts an operation among those that wait for their turn, and waits.
func (s *sim) wait(op *simOp) {
	if s.direct.Load() {
		s.turns.Lock()
		defer s.turns.Unlock()
		var fault error
		if s.fault != nil {
			fault = s.fault(op.name)
		}
		op.run(fault)
		return
	}
	s.mu.Lock()
	at, _ := slices.BinarySearchFunc(s.waiting, op, func(a, b *simOp) int {
		return cmp.Or(cmp.Compare(a.engine.number, b.engine.number),
			cmp.Compare(a.name, b.name), -1)
	})
	s.waiting = slices.Insert(s.waiting, at, op)
	s.mu.Unlock()
	<-op.turn
}

// must records a failure unless holds.
func (s *sim) must(holds bool, format string, args ...any) {
	if !holds {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.found = append(s.found, fmt.Sprintf(format, args...))
	}
}

// chance is true in one of n cases, as long as there are faults.
func (s *sim) chance(n int) bool { return !s.quiet && s.rng.IntN(n) == 0 }

// step lets one thing happen.
func (s *sim) step() {
	synctest.Wait() // everybody waits for a turn, or for time to pass
	s.mu.Lock()
	waiting := len(s.waiting)
	s.mu.Unlock()
	switch n := s.rng.IntN(20); {
	case n == 0 && s.chance(6):
		s.crash()
	case n == 1 && waiting == 0 && s.chance(4):
		time.Sleep(commitlog.DuplicateWindow)
	case n <= 4:
		s.clients[s.rng.IntN(len(s.clients))].act()
	case n == 7 && len(s.game.delayed) > 0:
		s.game.deliverLate()
	case n == 8 && s.chance(8):
		s.game.isAbsent = !s.game.isAbsent
	case n == 8:
		s.operator.act()
	case n == 10 && s.fails():
		s.operator.retry()
	case n == 9 && s.operator.announced < len(s.log.messages):
		s.operator.publishPauses()
	case waiting > 0 && n < 19:
		s.turn(s.rng.IntN(waiting))
	default:
		// Not whole milliseconds: the timers of one step do not end with another's.
		pause := time.Duration(1+s.rng.IntN(200))*time.Millisecond + 7*time.Microsecond
		if s.quiet && waiting == 0 && s.settled() {
			pause *= 100 // until a run ends by the clock of an engine that is an hour off
		}
		time.Sleep(pause)
	}
}

// turn gives a turn to the ith waiting operation, together with its engine's indistinguishable
// ones.
func (s *sim) turn(i int) {
	s.mu.Lock()
	op := s.waiting[i]
	same := func(o *simOp) bool { return o.engine == op.engine && o.name == op.name }
	first := slices.IndexFunc(s.waiting, same)
	end := first + 1
	for end < len(s.waiting) && same(s.waiting[end]) {
		end++
	}
	turns := slices.Clone(s.waiting[first:end])
	s.waiting = slices.Delete(s.waiting, first, end)
	s.mu.Unlock()
	fault := s.drawFault(op)
	s.trace("engine %d: %s, fault %v", op.engine.number, op.name, fault)
	for _, op := range turns {
		op.run(fault)
		close(op.turn)
	}
}

// drawFault draws the fault of an operation; nil for none.
func (s *sim) drawFault(op *simOp) error {
	switch {
	case s.chance(25):
		return errSimLost
	case s.chance(25):
		return errSimUnanswered
	case strings.HasPrefix(op.name, guardedAppend+"world.") && s.chance(25):
		return errSimGuard
	}
	return nil
}

// crash kills the writer and starts another in its place, or starts another while the first one
// goes on, like a writer that lost its lease unnoticed; that one is killed the next time. With an
// even seed only one lives at a time, so that a run is more often repeatable.
func (s *sim) crash() {
	if len(s.engines) == 1 && s.seed%2 == 1 && s.rng.IntN(2) == 0 {
		s.engines = append(s.engines, s.start())
		s.trace("engine %d takes over", s.engines[1].number)
		return
	}
	s.trace("engine %d is killed", s.engines[0].number)
	s.kill(0)
	if s.engines = s.engines[1:]; len(s.engines) == 0 {
		s.engines = append(s.engines, s.start())
	}
}

func (s *sim) kill(i int) {
	e := s.engines[i]
	e.dead.Store(true)
	e.dispatcher.StopAccepting()
	e.kill()
	s.mu.Lock()
	waiting := slices.Clone(s.waiting)
	s.waiting = slices.DeleteFunc(s.waiting, func(op *simOp) bool { return op.engine == e })
	s.mu.Unlock()
	for _, op := range waiting { // what it had in hand finds that it is dead
		if op.engine == e {
			op.run(nil)
			close(op.turn)
		}
	}
	go func() {
		_ = e.queue.Drain(context.Background())
		_ = e.index.Close()
	}()
	for _, c := range s.clients {
		if c.requester == e {
			c.requester = nil // nobody answers it any more
		}
	}
}

// run runs a seed and returns the failures.
func (s *sim) run(steps int) []string {
	for range steps {
		s.step()
	}
	s.quiet, s.game.isAbsent = true, false
	for range 50 * steps {
		synctest.Wait() // so that what the clients know can be read
		if s.settled() && s.finished() {
			break
		}
		s.step()
	}
	synctest.Wait()
	for _, c := range s.clients {
		s.must(c.open == nil, "%s has no answer", c.name)
	}
	s.must(!s.pending(), "a town is pending for ever")
	s.must(s.finished(), "a run has no end: %v", s.operator.open)
	for i := range s.engines {
		s.kill(i)
	}
	time.Sleep(time.Minute) // until all that they had in hand has ended
	s.checkLog()
	s.fsck()
	return s.found
}

// settled reports whether all clients have their answers, and no town is pending.
func (s *sim) settled() bool {
	return !slices.ContainsFunc(s.clients, func(c *simClient) bool { return c.open != nil }) &&
		!s.pending()
}

func (s *sim) pending() bool {
	for i := range simTowns {
		token := wire.TownToken(fmt.Sprint("town ", i))
		rec, err := s.log.last(layout.LogSubject("main", token)).record()
		if err != nil || rec.Pending != nil {
			return true
		}
	}
	return false
}
