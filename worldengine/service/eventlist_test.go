package service

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A user who fills the requests that wait for a commit leaves room to the others.
func TestPolls_Bounds(t *testing.T) {
	t.Parallel()
	var p polls
	fill := func(user string) (n int) {
		for p.enter(user) {
			n++
		}
		return n
	}
	require.Equal(t, maxPollsOfUser, fill("ann"))
	require.Equal(t, maxPollsOfUser, fill("bob"))
	require.Equal(t, maxPolls-2*maxPollsOfUser, fill(""))
	require.False(t, p.enter("carl"))
	p.leave("ann")
	require.False(t, p.enter("bob"), "bob has all that a user may")
	require.True(t, p.enter("ann"))
	for range maxPollsOfUser {
		p.leave("ann")
	}
	require.NotContains(t, p.of, "ann")
}
