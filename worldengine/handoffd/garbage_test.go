package handoffd

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGarbage_Growth(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for live, want := range map[uint64]int{
		0: 300, 16 * mib: 300, 64 * mib: 100, 128 * mib: 50, 4000 * mib: 25,
	} {
		require.Equal(t, want, growth(live), "%d live bytes", live)
	}
}

// The growth is set anew after each collection.
func TestGarbage_Adjusts(t *testing.T) {
	old := debug.SetGCPercent(maxGrowth)
	defer debug.SetGCPercent(old)
	adjustGrowth()
	live := make([]byte, 2*garbage)
	for range 3 {
		debug.SetGCPercent(maxGrowth)
		require.Eventually(t, func() bool {
			runtime.GC()
			percent := debug.SetGCPercent(maxGrowth)
			return percent >= minGrowth && percent <= 50
		}, time.Minute, time.Millisecond)
	}
	runtime.KeepAlive(live)
}
