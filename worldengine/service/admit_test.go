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

// Bytes never exceed their bound, and a request that is released twice counts once.
func TestBytesThatAreHeld(t *testing.T) {
	t.Parallel()
	s := &Service{held: held{bound: 1000}}
	slots := queue.NewSlots(1<<20, 1<<21)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for n := range int64(2000) {
				if !s.held.take(n%400, false) {
					continue
				}
				if bytes := s.held.bytes.Load(); bytes > s.held.bound {
					t.Errorf("%d bytes are held", bytes)
				}
				if slots.Take("t") != queue.Granted {
					t.Error("no slot is free")
				}
				in := &incoming{slots: slots, town: "t", bytes: n % 400}
				s.release(in)
				s.release(in)
			}
		})
	}
	clients.Wait()
	require.Zero(t, s.Overload().HeldBytes)
	require.Zero(t, s.Overload().Held)
	require.Zero(t, slots.Taken())
	require.True(t, s.held.take(1000, false))
	require.False(t, s.held.take(1, false))
	require.True(t, s.held.take(100, true), "a read has room still")
}
