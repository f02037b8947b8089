package handoffd

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/wire"
)

var (
	tortureKills = flag.Int("torture.kills", 2,
		"how often TestTorture kills the server, for each way to apply commands; with more than the "+
			"default, TestKill_OneOfTwo, TestKill_Retry and TestKill_Plugin/approved kill at every "+
			"point instead of three")
	tortureTowns = flag.Int("torture.towns", 0,
		"how many towns it drives at once; 0 for 8, and for 16 if -torture.kills or "+
			"-torture.slow asks for more than the default")
)

// isLong reports whether more is asked for than the ordinary tests do.
func isLong() bool { return *tortureKills > 2 || *tortureSlow > 0 }

// torture is a server that is harmed again and again under load, with a game.
type torture struct {
	*hammer
	*mortal
	t     *testing.T
	game  *game
	kills map[string]int
	// lasts is how long the towns may take to come to an end.
	lasts time.Duration
	// stepped gives the server a clock that is set at any moment, another one at each of its starts.
	stepped bool
	starts  uint64
	// older is the file of the index as it was after the kill before.
	older []byte
	// first is after how many requests at least the server is killed at random.
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
			r.stop()
			r.report()
		})
	}
}

func newTorture(t *testing.T, apply string) *torture {
	towns := 8
	if isLong() {
		towns = 16
	}
	r := &torture{
		t: t, hammer: newHammer(t, cmp.Or(*tortureTowns, towns), apply), kills: map[string]int{},
		lasts: time.Minute, first: 1, game: newGame(),
		// No town forgets a key, however many commits a quick machine makes.
		mortal: newMortal(t, dataArgs(t.TempDir(), append(slices.Clone(quickly[2:]),
			"--history-per-town=1000000")...)...),
	}
	r.patience = 15 * time.Second
	return r
}

// start starts the server with a mode of --sync, and its game.
func (r *torture) start(mode string, env ...string) {
	r.t.Helper()
	r.starts++
	if r.stepped {
		env = append(env, steps(r.seed+r.starts))
	}
	r.mortal.start(env, "--sync", mode)
	r.moveTo(r.nc)
	r.game.play(r.t, r.nc)
}

// round lets the clients work until the server is killed, at a point or at random, starts it again
// with a mode of --sync, and checks its world.
func (r *torture) round(mode string, point failpoint.Point) {
	r.t.Helper()
	total := 0
	for _, n := range r.kills {
		total += n
	}
	random := rand.New(rand.NewPCG(r.seed, uint64(len(r.kills)+total)))
	how := "at random"
	if point != "" {
		how = "at " + string(point)
		killWhen(r.t, r.file, point, random.IntN(30))
	}
	most := 100
	if isLong() {
		most = 400
	}
	at := int64(r.first + random.IntN(most))
	var requests atomic.Int64
	r.work(func(*driven) bool {
		if requests.Add(1) == at && point == "" {
			_ = r.cmd.Process.Signal(syscall.SIGKILL)
		}
		return true
	})
	<-r.ended
	require.NoError(r.t, os.RemoveAll(r.file))
	r.kills[how+r.harmIndex(random.IntN(4))]++
	r.start(mode)
	r.check()
}

// index is the file of the index.
func (r *torture) index() string { return filepath.Join(r.data(), "index", "main", "rows") }

// harmIndex harms the file of the index of a server that is gone, in one of four ways, and returns
// how.
func (r *torture) harmIndex(way int) string {
	r.t.Helper()
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

// work has the towns driven while more says so, or until the server is gone.
func (r *torture) work(more func(*driven) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), r.lasts)
	defer cancel()
	ended := r.ended
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	r.drive(ctx, more)
	if r.t.Failed() {
		r.t.FailNow()
	}
	if ctx.Err() == context.DeadlineExceeded {
		r.report()
		for _, d := range r.towns {
			if d.open != nil {
				r.t.Logf("%s: %s at day %d is open: %v", d.id, d.open.kind, d.state.Epoch(), d.replies)
			}
		}
		r.program.end(syscall.SIGQUIT) // prints its goroutines
		r.t.Fatalf("-torture.seed=%d: the towns do not come to an end: %s", r.seed, r.stderr)
	}
}

// some lets the clients make so many requests, and then until nothing is open.
func (r *torture) some(requests int64) {
	r.t.Helper()
	var n atomic.Int64
	r.work(func(d *driven) bool { return n.Add(1) < requests || d.open != nil })
}

// verifyAgain starts the server, checks its world, and ends it in order.
func (r *torture) verifyAgain() {
	r.t.Helper()
	r.start("interval")
	r.check()
	r.stop()
}

// check has the open requests answered, and holds everything against the model.
func (r *torture) check() {
	r.t.Helper()
	r.work(func(d *driven) bool { return d.open != nil })
	r.verify(r.nc, 0)
	if r.data() != "" { // a server that joins a NATS keeps its index in memory
		indextest.RequireRebuilt(r.t, operator(r.t, r.nc), wire.DefaultWorld, filepath.Dir(r.index()))
	}
	if r.apply == "plugin" { // once for each executed handoff, and for no other
		require.Equal(r.t, r.replies()["executed"], r.game.changed(), "-torture.seed=%d", r.seed)
	}
}

// report logs the kills and the answers.
func (r *torture) report() {
	r.t.Logf("-torture.seed=%d: %v; replies: %v", r.seed, r.kills, r.replies())
}
