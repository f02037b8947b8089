package projection

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

var theDay = time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return theDay.Add(time.Duration(seconds) * time.Second) }

func streamInfo(created time.Time, last uint64) *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Created: created, State: jetstream.StreamState{LastSeq: last}}
}

func TestAPlace(t *testing.T) {
	t.Parallel()
	var p place
	require.Equal(t, uint64(91), p.enter(streamInfo(at(0), 100), at(5), 10))
	require.Zero(t, p.behind(), "what was there counts as projected")
	require.True(t, p.since().IsZero())

	p.see(91, 9)
	p.take(91, at(1))
	require.Zero(t, p.behind(), "nor is it a lag when it is looked at")
	p.see(101, 4)
	require.Equal(t, uint64(5), p.behind())
	require.Equal(t, at(5), p.since(), "when the end was seen last")
	p.take(103, at(7))
	require.Equal(t, uint64(2), p.behind())
	require.Equal(t, at(7), p.since())
	p.look(105, at(8))
	require.Equal(t, at(7), p.since(), "105 is not projected")
	p.take(105, at(9))
	require.True(t, p.since().IsZero())
	p.look(105, at(20))
	p.see(106, 0)
	require.Equal(t, at(20), p.since())
	p.look(105, at(30))
	require.Zero(t, p.behind(), "106 was removed")

	require.Equal(t, uint64(96), p.enter(streamInfo(at(0), 200), at(40), 10), "the same stream goes on")
	require.Equal(t, uint64(95), p.behind())
	require.Equal(t, at(30), p.since())
	require.Equal(t, uint64(41), p.enter(streamInfo(at(0), 50), at(50), 10), "it has lost its tail")
	require.Zero(t, p.behind())
	require.Equal(t, uint64(1), p.enter(streamInfo(at(55), 7), at(60), 10), "another one is read from its beginning")
	require.Equal(t, uint64(7), p.behind())
	require.Equal(t, at(60), p.since())
	require.Equal(t, uint64(1), p.enter(streamInfo(at(55), 7), at(60), 1000))
}
