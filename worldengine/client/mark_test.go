package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The servers of a cluster may bring an event later than others that were stored after it: the mark
// stays behind what has come by as much as that may take.
func TestTheMarkStaysBehindWhatCame(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	f := &follower{runs: runs{mark: 1}}
	f.pace.late, f.pace.sweep = time.Minute, 20
	f.reached(place{10, at})
	require.EqualValues(t, 1, f.mark)
	f.reached(place{15, at.Add(30 * time.Second)})
	require.EqualValues(t, 1, f.mark)
	f.reached(place{20, at.Add(time.Minute)})
	require.EqualValues(t, 10, f.mark)
	f.reached(place{30, at.Add(2 * time.Minute)})
	require.EqualValues(t, 20, f.mark)
}
