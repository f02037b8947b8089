package handoffd

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/powertest"
	"worldengine/worldengine/wire"
)

var (
	powerCuts = flag.Int("power.cuts", 1, "how often each test of the loss of power cuts it")
	powerSeed = flag.Uint64("power.seed", 0, "the seed of the moments, and of the surviving data; 0 for a random one")
)

// computer runs handoffd on a disk of its own, and loses its power.
type computer struct {
	*program
	t    *testing.T
	draw *rand.Rand
	disk *powertest.Disk
	dir  string // where the disk is
	end  func() // unmounts it
	args []string
	cuts int
}

func newComputer(t *testing.T, args ...string) *computer {
	t.Helper()
	powertest.NeedFUSE(t)
	seed := *powerSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-power.seed=%d", seed)
	c := &computer{t: t, draw: rand.New(rand.NewPCG(seed, 0)), args: args}
	c.use(powertest.NewDisk())
	t.Cleanup(func() { t.Logf("%d cuts", c.cuts) })
	return c
}

// use mounts a disk.
func (c *computer) use(disk *powertest.Disk) {
	c.t.Helper()
	c.disk, c.dir = disk, c.t.TempDir()
	c.end = disk.Use(c.t, c.dir)
	c.t.Cleanup(func() { // before the disk is unmounted
		if c.program != nil {
			c.program.end(syscall.SIGKILL)
		}
	})
}

// slow returns a disk whose syncs take a time.
func slow(sync time.Duration) *powertest.Disk {
	d := powertest.NewDisk()
	d.SyncTakes = sync
	return d
}

// data is the data directory.
func (c *computer) data() string { return filepath.Join(c.dir, "data") }

// launch starts the server, and does not wait until it is ready.
func (c *computer) launch(command ...string) {
	c.t.Helper()
	if command == nil {
		command = dataArgs(c.data(), c.args...)
	}
	c.program = spawn(c.t, nil, command...)
}

// boot starts the server, which must get ready.
func (c *computer) boot() *nats.Conn {
	c.t.Helper()
	c.launch()
	c.await("ready")
	require.True(c.t, c.is("ready"), "%s", c.stderr)
	return c.connect()
}

// cut takes the power away. Without draw only synced data survives.
func (c *computer) cut(draw *rand.Rand) {
	c.t.Helper()
	after := c.disk.Cut(draw)
	c.cuts++
	c.program.end(syscall.SIGKILL)
	c.end()
	c.use(after)
}

// syncDelay is the time after which all is on the disk with --sync interval: two seconds, and as much
// again for a busy machine.
const syncDelay = 4 * time.Second

// moment waits for a random part of a time.
func (c *computer) moment(most time.Duration) {
	time.Sleep(time.Duration(c.draw.Int64N(int64(most)))) // the moment is drawn, not awaited
}

// With --sync always each answered handoff is there after the loss of power, whenever it comes, and
// the log is whole.
func TestPower_Always(t *testing.T) {
	t.Parallel()
	c := newComputer(t, "--sync", "always")
	h := newHammer(t, 4, "")
	h.create(c.boot())
	for range *powerCuts {
		h.start()
		h.waitMore(1 + c.draw.IntN(200))
		c.moment(20 * time.Millisecond)
		c.cut(c.draw)
		h.end()
		for range c.draw.IntN(3) { // in starts, too
			c.launch()
			c.moment(300 * time.Millisecond)
			c.cut(c.draw)
		}
		h.verify(c.boot(), 0)
	}
}

// stepper is a client of a town whose handoffs are executed one after the other.
type stepper struct {
	t        *testing.T
	nc       *nats.Conn
	state    town.State
	answered []time.Time // one for each day
}

// newStepper makes the town.
func newStepper(t *testing.T, nc *nats.Conn) *stepper {
	t.Helper()
	s := &stepper{t: t, nc: nc}
	s.state = newDriven(0, "", 1).state
	ask[townNow](t, nc, wire.TownPut, fmt.Appendf(nil, `{"snapshot":%s}`, s.state.Canonical))
	return s
}

// named is a request about the town.
func (s *stepper) named() []byte {
	return fmt.Appendf(nil, `{"townId":%q}`, s.state.Snapshot.TownID)
}

// run sends handoffs until a time, or until they fail.
func (s *stepper) run(until time.Time) {
	for time.Now().Before(until) {
		body := talk(s.state.Snapshot.TownID, s.state.Hash, s.state.Epoch(), 0.5)
		reply, err := s.nc.Request(wire.Subject(wire.DefaultWorld, wire.Handoff), body, 10*time.Second)
		if err != nil || reply.Header.Get(wire.ErrorCodeHeader) != "" {
			return
		}
		after, _ := town.DefaultRules().Apply(s.state.Snapshot, &parsed(body).Proposal)
		s.state, s.answered = after, append(s.answered, time.Now())
	}
}

// lost returns the handoffs that were answered before a moment, and are gone.
func (s *stepper) lost(nc *nats.Conn, before time.Time) (lost int) {
	s.t.Helper()
	kept := townOf(s.t, nc, s.state.Snapshot.TownID).DecisionEpoch
	for day, at := range s.answered {
		if at.Before(before) && int64(day+1) > kept {
			lost++
		}
	}
	return lost
}

// With --sync interval nothing is lost that was answered two seconds before the loss of power. This
// test must lose what came later: else it would see no loss at all.
func TestPower_Interval(t *testing.T) {
	t.Parallel()
	for range *powerCuts {
		c := newComputer(t, "--sync", "interval")
		nc := c.boot()
		s := newStepper(t, nc)
		s.run(time.Now().Add(6 * time.Second))
		at := time.Now()
		c.cut(nil)
		nc = c.boot()
		require.Zero(t, s.lost(nc, at.Add(-syncDelay)))
		requireSound(t, nc)
		c.program.end(syscall.SIGKILL)
	}
	c := newComputer(t, "--sync", "interval")
	lost := 0
	for range 5 {
		s := newStepper(t, c.boot())
		s.run(time.Now().Add(200 * time.Millisecond))
		c.cut(nil)
		nc := c.boot()
		if errorOf(t, nc, wire.TownGet, s.named()) == "UNKNOWN_TOWN" {
			lost += len(s.answered)
		} else {
			lost += s.lost(nc, time.Now())
		}
		c.program.end(syscall.SIGKILL)
		c.use(powertest.NewDisk())
	}
	require.Positive(t, lost, "the control loses nothing: the disk does not lose its power")
}

// A server that ended in order has synced all, in each mode.
func TestPower_Stopped(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"always", "interval"} {
		c := newComputer(t, "--sync", sync)
		s := newStepper(t, c.boot())
		for range *powerCuts {
			s.run(time.Now().Add(100 * time.Millisecond))
			c.stop()
			c.cut(nil)
			s.nc = c.boot()
			require.Zero(t, s.lost(s.nc, time.Now()), sync)
			requireSound(t, s.nc)
		}
	}
}

// With --sync always a server that follows a killed one shows nothing that a loss of power undoes.
func TestPower_AfterKill(t *testing.T) {
	t.Parallel()
	c := newComputer(t, "--sync", "always")
	c.use(slow(10 * time.Millisecond)) // so that the kill comes between a write and its sync
	h := newHammer(t, 4, "")
	h.create(c.boot())
	for range *powerCuts {
		h.start()
		h.waitMore(1 + c.draw.IntN(20))
		c.program.end(syscall.SIGKILL)
		h.end()
		nc, seen := c.boot(), map[string]string{}
		for _, d := range h.towns {
			seen[d.id] = townOf(t, nc, d.id).SnapshotHash
		}
		c.cut(nil)
		nc = c.boot()
		for id, hash := range seen {
			require.Equal(t, hash, townOf(t, nc, id).SnapshotHash)
		}
		h.verify(nc, 0)
	}
}

// change changes the setting require-approval as an operator does.
func (c *computer) change(ctx context.Context, streams *nats.Conn, types string) error {
	js, err := jetstream.New(streams)
	if err != nil {
		return err
	}
	_, err = worldsettings.Change(ctx, js, wire.DefaultWorld,
		worldsettings.Settings{RequireApproval: types}, false)
	return err
}

// Settings whose change was answered hold, with --sync always, and no command that they leave to a
// person is executed. If the power goes amid a change, the old or the new settings hold. With
// --sync interval the same is so for all that is older than two seconds, and the world is served.
func TestPower_Settings(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"always", "interval"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			c := newComputer(t, "--sync", sync)
			nc := c.boot()
			s, current := newStepper(t, nc), "none"
			time.Sleep(syncDelay) // then the town is on the disk, in each mode
			for i := range 2 * *powerCuts {
				wanted := map[bool]string{true: "TOWNSFOLK_TALK", false: "none"}[i%2 == 0]
				streams := operator(t, nc)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				answered := make(chan error, 1)
				go func() { answered <- c.change(ctx, streams, wanted) }()
				amid := c.draw.IntN(2) == 0
				if amid {
					c.moment(10 * time.Millisecond)
				} else {
					require.NoError(t, <-answered)
				}
				c.cut(map[bool]*rand.Rand{true: c.draw, false: nil}[c.draw.IntN(3) > 0])
				cancel()
				nc = c.boot()
				body := talk(s.state.Snapshot.TownID, s.state.Hash, s.state.Epoch(), c.draw.Float64())
				got := insist(t, nc, body, time.Minute)
				asks := got.ReasonCode == handoff.ReasonApprovalRequired
				if sync == "always" && !amid {
					require.Equal(t, wanted != "none", asks, "%s: %s", wanted, got.ReasonCode)
				} else {
					require.Contains(t, []bool{wanted != "none", current != "none"}, asks)
				}
				current = map[bool]string{true: "TOWNSFOLK_TALK", false: "none"}[asks]
				if !asks {
					after, _ := town.DefaultRules().Apply(s.state.Snapshot, &parsed(body).Proposal)
					s.state = after
				}
				requireSound(t, nc)
				if sync == "interval" {
					time.Sleep(syncDelay) // then this is on the disk
				}
			}
		})
	}
}

// A server that loses its power while it makes a world makes it at its next start, or goes on.
func TestPower_Create(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"always", "interval"} {
		for range *powerCuts {
			c := newComputer(t, "--sync", sync)
			for range 3 {
				c.launch()
				c.moment(250 * time.Millisecond)
				c.cut(c.draw)
			}
			nc := c.boot()
			s := newStepper(t, nc)
			s.run(time.Now().Add(20 * time.Millisecond))
			requireSound(t, nc)
			c.stop()
			c.end()
		}
	}
}

// While a restore is unfinished nobody serves the world, also if the power goes; the restore, run
// again, comes to its end. A restore that has ended is whole.
func TestPower_Restore(t *testing.T) {
	t.Parallel()
	powertest.NeedFUSE(t)
	from, dir := serve(t), filepath.Join(t.TempDir(), "backup")
	nc := from.connect()
	s := newStepper(t, nc)
	s.run(time.Now().Add(300 * time.Millisecond))
	_, err := backup.Create(t.Context(), operator(t, nc), dir, backup.Options{})
	require.NoError(t, err)
	from.stop()
	for range *powerCuts {
		c := newComputer(t)
		restore := []string{"restore", dir, "--data", c.data()}
		c.launch(restore...)
		var watching sync.WaitGroup
		begun, stop := false, make(chan struct{})
		watching.Go(func() { // as soon as there is a stream to restore, the mark is on the disk
			log := filepath.Join(c.data(), "jetstream", "$G", "streams", layout.LogStream(wire.DefaultWorld))
			for !begun {
				_, err := os.Stat(log)
				begun = err == nil
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		c.moment(400 * time.Millisecond)
		close(stop)
		watching.Wait()
		c.cut(c.draw)
		c.launch()
		c.await("ready")
		if c.is("ready") {
			at := errorOf(t, c.connect(), wire.TownGet, s.named())
			require.True(t, at == "" || !begun, "a restore had begun, and an empty world is served")
			c.stop()
			if at != "" { // the restore had not begun
				c.end()
				continue
			}
		} else {
			require.Contains(t, c.stderr.String(), "restore")
			c.launch("restore", dir, "--data", c.data())
			<-c.ended
			require.NoError(t, c.err, "%s", c.stderr)
			c.cut(nil)
		}
		nc := c.boot()
		require.Zero(t, s.lost(nc, time.Now()))
		requireSound(t, nc)
		c.stop()
		c.end()
	}
}
