package lifecycle_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/lifecycle"
)

// history notes what happens to its parts.
type history []string

func (h *history) part(name string, start, stop error) lifecycle.Part {
	return lifecycle.Part{
		Name:  name,
		Start: func(context.Context) error { *h = append(*h, "start "+name); return start },
		Stop:  func(context.Context) error { *h = append(*h, "stop "+name); return stop },
	}
}

// Parts stop in the reverse order of their start, once, and all of them even if one fails.
func TestList_Order(t *testing.T) {
	t.Parallel()
	var h history
	var list lifecycle.List
	failed := errors.New("no room")
	require.NoError(t, list.Start(t.Context(), h.part("index", nil, nil), h.part("alerts", nil, failed)))
	require.NoError(t, list.Start(t.Context(), lifecycle.Part{Name: "open"}, h.part("queue", nil, nil)))
	err := list.Stop(t.Context())
	require.ErrorIs(t, err, failed)
	require.EqualError(t, err, "stop alerts: no room")
	require.NoError(t, list.Stop(t.Context()))
	require.Equal(t, history{"start index", "start alerts", "start queue",
		"stop queue", "stop alerts", "stop index"}, h)
}

// If a part cannot start, those before it are stopped, and those behind it never start.
func TestList_FailedStart(t *testing.T) {
	t.Parallel()
	var h history
	var list lifecycle.List
	failed, stuck := errors.New("no connection"), errors.New("still busy")
	err := list.Start(t.Context(), h.part("index", nil, stuck), h.part("alerts", nil, nil),
		h.part("router", failed, nil), h.part("queue", nil, nil))
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, stuck)
	require.Equal(t, history{"start index", "start alerts", "start router", "stop alerts", "stop index"}, h)
	require.NoError(t, list.Stop(t.Context()), "nothing runs")
}

// The parts of a start that is given up are stopped all the same, with a context that is not done.
func TestList_CancelledStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var list lifecycle.List
	err := list.Start(ctx, lifecycle.Part{Name: "index", Stop: func(ctx context.Context) error { return ctx.Err() }},
		lifecycle.Part{Name: "log", Start: func(ctx context.Context) error { cancel(); return ctx.Err() }})
	require.Equal(t, context.Canceled.Error(), err.Error())
}

// A part that is skipped neither starts nor stops.
func TestList_Skip(t *testing.T) {
	t.Parallel()
	var h history
	var list lifecycle.List
	skipped := h.part("bus", nil, nil)
	skipped.Skip = true
	require.NoError(t, list.Start(t.Context(), h.part("index", nil, nil), skipped))
	require.NoError(t, list.Stop(t.Context()))
	require.Equal(t, history{"start index", "stop index"}, h)
}
