package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHandoffsAreDueAtTheRate(t *testing.T) {
	t.Parallel()
	p := &pacer{rate: 4, start: time.Now().Add(-time.Hour)} // all that is asked for here is late
	due := make(map[time.Duration]bool)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 25 {
				at, ok := p.next(t.Context(), time.Now())
				assert.True(t, ok)
				mu.Lock()
				due[at.Sub(p.start)] = true
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	for n := range 100 {
		assert.True(t, due[time.Duration(n)*250*time.Millisecond], "handoff %d", n)
	}
}

func TestWhatIsNotDueYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(24 * time.Hour)
	p := &pacer{rate: 1000, start: time.Now()}
	for range 20 {
		due, ok := p.next(t.Context(), later)
		require.True(t, ok)
		require.False(t, time.Now().Before(due))
	}
	p = &pacer{rate: 1, start: time.Now().Add(time.Hour)}
	_, ok := p.next(t.Context(), time.Now().Add(time.Minute))
	require.False(t, ok, "due after the end")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, ok = p.next(ctx, later)
	require.False(t, ok)
	_, ok = new(pacer).next(ctx, later)
	require.False(t, ok)
	due, ok := new(pacer).next(t.Context(), later)
	require.True(t, ok)
	require.False(t, time.Now().Before(due), "without a rate it is due at once")
}
