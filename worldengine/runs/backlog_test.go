package runs

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fill appends to a town until it has no room, and returns how many appends of ten events it had.
func (b *backlog) fill(town string, seq uint64) (appends int) {
	for b.take(town, 10) {
		b.done(town, 10, seq)
		appends++
	}
	return appends
}

// One town leaves room for others, a town without any gets some as long as there is any, and appends
// that were read make room again.
func TestBacklog_SharedByTowns(t *testing.T) {
	t.Parallel()
	read := uint64(0)
	b := backlog{digested: func() uint64 { return read }, towns: map[string]int{}}
	alone := b.fill("a", 1)
	require.InDelta(t, MaxUndigested/2/10, alone, 1)
	require.InDelta(t, alone/2, b.fill("b", 2), 1)
	for i := range 100 {
		b.fill(fmt.Sprint("t", i), 3)
	}
	require.False(t, b.take("new", 1), "all is taken")
	require.LessOrEqual(t, b.events, MaxUndigested+10)
	read = 1
	require.True(t, b.take("new", 1))
	b.done("new", 1, 0)
	read = 3
	require.Equal(t, alone, b.fill("a", 4), "all is free again")
	read = 4
	b.sweep()
	require.Empty(t, b.towns)
	require.Zero(t, b.events)
}

// Appends go on at a bounded rate while nothing reads them.
func TestBacklog_ReadersStandStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := backlog{digested: func() uint64 { return 0 }, towns: map[string]int{}}
		before := b.fill("a", 1)
		time.Sleep(undigestedFor)
		require.Equal(t, before, b.fill("a", 2))
	})
}
