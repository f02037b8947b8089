package sharing

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/placement"
)

// named is a world that has nothing but a name.
type named struct {
	PlacedWorld
	name string
}

func (w named) Name() string { return w.name }

// A world that is removed while it begins leaves nothing in the placer: nobody else would remove it.
func TestPlacer_RemovedWhileItBegins(t *testing.T) {
	t.Parallel()
	p := newPlacer(Config{Self: placement.Announcement{ID: "self"}, Worlds: []PlacedWorld{named{name: "gone"}}})
	require.Len(t, p.view.Decide(p.now()), 1)
	p.Remove("gone")
	p.NoteServable("gone", errors.New("it could not be served"))
	require.Empty(t, p.view.Decide(p.now()))
	require.Empty(t, p.self.Worlds)
	require.Empty(t, p.self.Failed)
}
