package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// fairModel decides in the simplest way who may have a slot: it counts all that are held.
type fairModel struct {
	perTown, total int
	held           []string        // the town of each task that is submitted and not finished
	working        map[string]bool // the towns that a worker has
}

func (m *fairModel) of(town string) (n int) {
	for _, h := range m.held {
		if h == town {
			n++
		}
	}
	return n
}

func (m *fairModel) mayWait(town string) bool {
	has, free := m.of(town), m.total-len(m.held)
	waiting := has
	if m.working[town] {
		waiting--
	}
	return has == 0 && free > 0 || has < free && waiting < m.perTown
}

// begin and finish are a worker's steps with a town, one at a time.
func (q *Queue) begin(townID string) {
	t := q.towns[townID]
	t.tasks = t.tasks[1:]
}

func (q *Queue) finish(townID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slots.Release(townID)
	q.goOn(q.towns[townID])
}

// Whatever busy towns do, slots are given and refused as in the model: a town without tasks gets
// one as long as any is free, and towns with more than one task never hold all.
func TestQueue_SlotsAsInTheModel(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		m := &fairModel{perTown: 1 + g.IntN(12), total: 1 + g.IntN(40), working: map[string]bool{}}
		q := newQueue(t.Context(), 0, m.perTown, m.total)
		hot := 1 + g.IntN(6)
		for range 400 {
			town := fmt.Sprint("hot ", g.IntN(hot))
			switch n := g.IntN(10); {
			case n == 0:
				town = fmt.Sprint("cold ", g.IntN(50))
				fallthrough
			case n < 7:
				m.submit(t, q, town)
			case n < 8:
				m.begin(q, town)
			default:
				m.finish(q, town)
			}
			require.Equal(t, len(m.held), q.Depth())
		}
	}
}

func (m *fairModel) submit(t *testing.T, q *Queue, town string) {
	t.Helper()
	has, free := m.of(town), m.total-len(m.held)
	err := q.Submit(town, func(context.Context, bool) {})
	if m.mayWait(town) {
		require.NoError(t, err, "%s has %d, %d are free", town, has, free)
		m.held = append(m.held, town)
	} else {
		require.ErrorIs(t, err, ErrOverloaded, "%s has %d, %d are free", town, has, free)
	}
	if has == 0 {
		require.Equal(t, free > 0, err == nil, "a town without tasks, %d are free", free)
	}
	if free == 1 && has > 0 {
		require.Error(t, err, "the last place")
	}
}

func (m *fairModel) begin(q *Queue, town string) {
	if m.of(town) > 0 && !m.working[town] {
		q.begin(town)
		m.working[town] = true
	}
}

func (m *fairModel) finish(q *Queue, town string) {
	if !m.working[town] {
		return
	}
	for i, h := range m.held {
		if h == town {
			m.held = append(m.held[:i], m.held[i+1:]...)
			break
		}
	}
	m.working[town] = false
	q.finish(town)
}
