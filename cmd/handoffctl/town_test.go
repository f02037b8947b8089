package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/town"
)

// A page of towns is bounded by the largest message, so long ids make pages short.
func TestTownList_Pages(t *testing.T) {
	c := online(t)
	const many = 10 // of which a page has a few
	for i := range many {
		id := fmt.Sprintf("%02d%s", i, strings.Repeat("x", 40_000))
		state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: id})
		_, err := c.engine.Put(t.Context(), state, "")
		require.NoError(t, err)
	}
	page := decode[messages.Towns](t, c.ok("town", "list", "-o", "json"))
	require.Len(t, page.Towns, many+3)
	assert.Empty(t, page.Next)
}
