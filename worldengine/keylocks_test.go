package worldengine

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneHolderOfAKeyAtATime counts without atomics: the race detector sees two holders at once.
func TestOneHolderOfAKeyAtATime(t *testing.T) {
	t.Parallel()
	const holders, rounds, keys = 16, 300, 4
	var locks keyLocks
	var counts [keys]int
	var all sync.WaitGroup
	for holder := range holders {
		all.Go(func() {
			for round := range rounds {
				key := (holder + round) % keys
				release := locks.hold(fmt.Sprint(key))
				before := counts[key]
				runtime.Gosched() // time for another holder
				counts[key] = before + 1
				release()
			}
		})
	}
	all.Wait()
	for _, count := range counts {
		require.Equal(t, holders*rounds/keys, count)
	}
	require.Empty(t, locks.held, "a key that nobody holds takes no memory")
}

// TestKeysDoNotWaitForEachOther would block for ever if they did.
func TestKeysDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	var locks keyLocks
	releaseA := locks.hold("a")
	releaseB := locks.hold("b")
	require.Len(t, locks.held, 2)
	releaseA()
	locks.hold("a")()
	require.Len(t, locks.held, 1)
	releaseB()
	require.Empty(t, locks.held)
}

// TestAWaiterGetsTheKeyThatIsReleased: the entry outlives its first holder while anybody waits.
func TestAWaiterGetsTheKeyThatIsReleased(t *testing.T) {
	t.Parallel()
	var locks keyLocks
	release := locks.hold("k")
	got := make(chan func())
	go func() { got <- locks.hold("k") }()
	for waiting := false; !waiting; { // until the second user is in line
		locks.mu.Lock()
		waiting = locks.held["k"].users == 2
		locks.mu.Unlock()
		runtime.Gosched()
	}
	select {
	case <-got:
		t.Fatal("two hold the key")
	default:
	}
	release()
	releaseWaiter := <-got
	require.Equal(t, 1, locks.held["k"].users, "who comes next waits for the waiter")
	releaseWaiter()
	require.Empty(t, locks.held)
}
