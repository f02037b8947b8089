package waiting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
)

// storedEntry is an entry of an index, and when it was stored.
type storedEntry struct {
	commitlog.WaitingRuns
	at time.Time
}

// memoryIndex is an index that stores an entry when it is let, and where it is not down.
type memoryIndex struct {
	Index
	let  func(commitlog.WaitingRuns)
	down bool

	mu      sync.Mutex
	entries []storedEntry
}

func (i *memoryIndex) PutWaiting(_ context.Context, _ string, w commitlog.WaitingRuns) error {
	if i.let != nil {
		i.let(w)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		return errors.New("down")
	}
	i.entries = append(i.entries, storedEntry{w, time.Now()})
	return nil
}

func heldRun(id string) *Run { return heldRunOf("t", id) }

func heldRunOf(townID, id string) *Run {
	return &Run{
		Identity: runevents.Identity{RunID: id},
		Handoff:  &handoff.Handoff{Proposal: handoff.Proposal{TownID: townID}},
	}
}

func renewed(t *testing.T, index *memoryIndex) *Store {
	s := New(nil, nil, index, Config{Server: "server", Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go s.renew(ctx)
	return s
}

// What is held is renewed for as long as it waits, though its town has no turn, and no longer.
func TestWhatIsHeldIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		index := &memoryIndex{}
		s := renewed(t, index)
		r := heldRun("run")
		require.NoError(t, s.Hold(t.Context(), "t", []*Run{r}))
		time.Sleep(3 * leaseTime)
		synctest.Wait()
		for i, e := range index.entries {
			require.Equal(t, []string{"run"}, e.Runs)
			if i > 0 {
				require.LessOrEqual(t, e.at.Sub(index.entries[i-1].at), leaseRenew)
			}
		}
		require.Less(t, time.Since(index.entries[len(index.entries)-1].at), leaseTime)

		s.Done(r)
		count := len(index.entries)
		time.Sleep(3 * leaseTime)
		synctest.Wait()
		require.Len(t, index.entries, count, "its entry ends")
		require.Empty(t, s.held)
	})
}

// The entries of many towns are renewed within their time, though some take all the time there is:
// those do not keep the others waiting.
func TestTheEntriesOfManyTownsAreRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const towns, latency = 40 * renewals, 50 * time.Millisecond
		slow := func(townID string) bool { return strings.HasSuffix(townID, "00") }
		var renewing atomic.Bool
		index := &memoryIndex{let: func(w commitlog.WaitingRuns) {
			switch {
			case !renewing.Load():
			case slow(w.TownID):
				time.Sleep(leaseRenew - time.Millisecond)
			default:
				time.Sleep(latency)
			}
		}}
		s := renewed(t, index)
		for i := range towns {
			townID := fmt.Sprintf("%04d", i)
			require.NoError(t, s.Hold(t.Context(), townID, []*Run{heldRunOf(townID, townID)}))
		}
		renewing.Store(true)
		time.Sleep(3 * leaseTime)
		index.mu.Lock()
		entries, end := slices.Clone(index.entries), time.Now()
		index.mu.Unlock()
		renewing.Store(false)
		time.Sleep(leaseRenew) // what is on its way ends
		last := map[string]time.Time{}
		for _, e := range entries {
			if before, known := last[e.TownID]; known {
				require.Less(t, e.at.Sub(before), leaseTime, e.TownID)
			}
			last[e.TownID] = e.at
		}
		require.Len(t, last, towns)
		for townID, at := range last {
			require.Less(t, end.Sub(at), leaseTime, townID)
		}
	})
}

// An entry that was made before a run was held does not come after the one that has the run.
func TestEntriesOfATownAreInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow, calls := make(chan struct{}), atomic.Int64{}
		index := &memoryIndex{let: func(commitlog.WaitingRuns) {
			if calls.Add(1) == 2 {
				<-slow
			}
		}}
		s := renewed(t, index)
		require.NoError(t, s.Hold(t.Context(), "t", []*Run{heldRun("first")}))
		time.Sleep(leaseRenew) // a renewal is on its way
		synctest.Wait()
		held := make(chan error, 1)
		go func() { held <- s.Hold(t.Context(), "t", []*Run{heldRun("second")}) }()
		synctest.Wait()
		close(slow)
		require.NoError(t, <-held)
		require.Equal(t, []string{"first", "second"}, index.entries[len(index.entries)-1].Runs)
	})
}

// A run that could not be put into the index, and was not recorded, is forgotten when it is
// cancelled.
func TestARunThatWasNeverRecordedIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		index := &memoryIndex{down: true}
		s := renewed(t, index)
		r := heldRun("run")
		require.Error(t, s.Hold(t.Context(), "t", []*Run{r}))
		s.Cancel(t.Context(), r, lifecycle.Cancellation{})
		time.Sleep(2 * leaseRenew)
		synctest.Wait()
		require.Empty(t, s.held)
	})
}
