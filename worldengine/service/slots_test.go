package service

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/queue"
)

// The pause grows with what waits, within its bounds, and is one that an answer was made for.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	for load, want := range map[queue.Load]int{
		{}: 50, {Town: 3, All: 3}: 50, {Town: 30, All: 30}: 100, {Town: 258, All: 258}: 550,
		{Town: 2, All: 2048}: 550, {Town: 2, All: 1 << 20}: 1000, {Town: 1 << 20}: 1000,
	} {
		require.Equal(t, want, pauseFor(load), "%+v", load)
	}
	last := 0
	for n := range 5000 {
		pause := pauseFor(queue.Load{All: n})
		require.GreaterOrEqual(t, pause, last)
		require.NotEmpty(t, overloadedHeaders[pause/pauseStep], "%d", pause)
		headers := overloadedHeaders[pause/pauseStep]
		require.Equal(t, []string{fmt.Sprint(pause)}, headers["Retry-After-Ms"])
		last = pause
	}
}

// Bytes never exceed their bound, and what is released twice counts once.
func TestBytesThatAreHeld(t *testing.T) {
	t.Parallel()
	h := &heldBytes{bound: 1000}
	slots := queue.NewSlots(1<<20, 1<<21)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for n := range int64(2000) {
				if !h.take(n%400, h.bound) {
					continue
				}
				if held := h.held.Load(); held > h.bound {
					t.Errorf("%d bytes are held", held)
				}
				if slots.Take("t") != queue.Granted {
					t.Error("no slot is free")
				}
				held := &slot{of: slots, held: h, town: "t", bytes: n % 400}
				held.release()
				held.release()
			}
		})
	}
	clients.Wait()
	require.Zero(t, h.held.Load())
	require.Zero(t, slots.Taken())
	require.True(t, h.take(1000, h.bound))
	require.False(t, h.take(1, h.bound))
	require.True(t, h.take(100, h.forSmall()), "a read has room still")
}
