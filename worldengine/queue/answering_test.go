package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A caller that submits as soon as it is answered is not queued, though the answering task's turn
// is not over yet.
func TestAnswering_NextTask(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 10, 10)
	said, submit := submitter(t, q)
	require.NoError(t, q.Submit("a", func(context.Context, bool) {
		submit("before the answer")
		q.Answering("a")
		submit("behind another")
	}))
	idle(t, q)
	require.NoError(t, q.Submit("a", func(context.Context, bool) {
		q.Answering("a")
		submit("first after the answer")
		submit("second after the answer")
	}))
	idle(t, q)
	require.NoError(t, q.Submit("a", func(context.Context, bool) { submit("in the next turn") }))
	idle(t, q)
	require.Equal(t, []string{"before the answer true", "behind another true",
		"first after the answer false", "second after the answer true",
		"in the next turn true"}, allOf(said))
}

// A task that is held goes on later, so work that is submitted behind it is queued, though the task
// that passed it has answered.
func TestAnswering_BehindHeldTask(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 10, 10)
	said, submit := submitter(t, q)
	turns := 0
	require.NoError(t, q.SubmitTask("a", work(func(context.Context, Turn) Result {
		if turns++; turns > 1 {
			return Done
		}
		return Held
	})))
	require.NoError(t, q.Submit("a", func(context.Context, bool) {
		q.Answering("a")
		submit("behind the held one")
	}))
	idle(t, q)
	require.Equal(t, []string{"behind the held one true"}, allOf(said))
}

// The engine's own upkeep does not make a task behind it queued; work that finishes a client's task
// does.
func TestQueue_BehindUpkeep(t *testing.T) {
	t.Parallel()
	q := testQueue(t, 1, 10, 10)
	said, submit := submitter(t, q)
	held := hold(t, q, "b") // the only worker
	require.NoError(t, q.SubmitUpkeep("a", func(context.Context) {}))
	submit("behind upkeep that waits")
	submit("behind that")
	close(held.open)
	idle(t, q)
	require.NoError(t, q.SubmitUpkeep("a", func(context.Context) {
		submit("behind upkeep that has its turn")
		submit("behind another")
	}))
	idle(t, q)
	require.NoError(t, q.SubmitUpkeep("a", func(context.Context) {
		assert.NoError(t, q.SubmitFirst("a", func(context.Context) {}))
		submit("behind upkeep and the end of an application")
	}))
	idle(t, q)
	require.NoError(t, q.SubmitUpkeep("a", func(context.Context) {
		submit("passed by the end of an application")
		assert.NoError(t, q.SubmitFirst("a", func(context.Context) {}))
	}))
	idle(t, q)
	require.Equal(t, []string{"behind upkeep that waits false", "behind that true",
		"behind upkeep that has its turn false", "behind another true",
		"behind upkeep and the end of an application true",
		"passed by the end of an application true"}, allOf(said))
}

// submitter returns a function that submits a named task for the town "a", and the channel of the
// tasks' reports: name, and whether it was queued.
func submitter(t *testing.T, q *Queue) (said chan string, submit func(name string)) {
	t.Helper()
	said = make(chan string, 10)
	return said, func(name string) {
		assert.NoError(t, q.Submit("a", func(_ context.Context, queued bool) {
			said <- fmt.Sprint(name, " ", queued)
		}))
	}
}

// idle waits until all submitted tasks are finished.
func idle(t *testing.T, q *Queue) {
	t.Helper()
	require.Eventually(t, func() bool { return q.Depth() == 0 }, patience, time.Millisecond)
}

// allOf returns the reports, and ends them.
func allOf(said chan string) (all []string) {
	close(said)
	for s := range said {
		all = append(all, s)
	}
	return all
}
