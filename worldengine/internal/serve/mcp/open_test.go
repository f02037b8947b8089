package mcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
)

// Only the newest open proposals are in memory.
func TestProposals_Bounded(t *testing.T) {
	t.Parallel()
	open := NewOpenProposals("", nil)
	h := &handoff.Handoff{}
	for range maxOpen + 1 {
		open.add(handoff.Hash([]byte{byte(len(open.order)), byte(len(open.order) >> 8)}), h)
	}
	require.Len(t, open.open, maxOpen)
	require.Len(t, open.order, maxOpen)
	require.Nil(t, open.find(handoff.Hash([]byte{0, 0})))
	last := open.order[len(open.order)-1]
	require.Same(t, h, open.find(last))
	open.remove(last, h)
	require.Nil(t, open.find(last))
	require.Len(t, open.order, maxOpen-1)
}
