package standin

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
)

func TestChangesBetween_Towns(t *testing.T) {
	t.Parallel()
	before := &town.Snapshot{
		SchemaVersion: town.SchemaVersion, TownID: "a", Day: 1,
		SideQuests: []town.SideQuest{{ID: "b/c", Title: "Guard"}},
		Projects:   []town.Project{{ID: "wall", Name: "Wall"}},
	}
	event := "storm"
	after := *before
	after.SideQuests = []town.SideQuest{{ID: "well", Title: "Dig"}}
	after.Projects = []town.Project{{ID: "wall", Name: "Wall", Progress: 0.5}}
	after.Pressure.Hope, after.LatestNetherEvent = 0.25, &event
	assert.Empty(t, changesBetween(before, before))
	assert.Equal(t, []handoff.Difference{
		{Path: "/latestNetherEvent", Before: []byte("null"), After: []byte(`"storm"`)},
		{Path: "/pressure/hope", Before: []byte("0"), After: []byte("0.25")},
		{Path: "/projects/wall/progress", Before: []byte("0"), After: []byte("0.5")},
		{Path: "/sideQuests/b~1c", Before: []byte(`{"id":"b/c","title":"Guard"}`), After: nil},
		{Path: "/sideQuests/well", Before: nil, After: []byte(`{"id":"well","title":"Dig"}`)},
	}, changesBetween(before, &after))
}
