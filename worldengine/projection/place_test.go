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
	require.Zero(t, p.behind())
	require.True(t, p.since().IsZero())

	p.begin(2)
	require.Equal(t, uint64(2), p.behind(), "what is looked at again")
	require.Equal(t, at(5), p.since(), "is no lag")
	p.see(1)
	p.see(0)
	p.take(95, 2, at(1))
	require.Zero(t, p.behind())
	p.see(4)
	require.Equal(t, uint64(5), p.behind())
	require.Equal(t, at(5), p.since(), "when the end was seen last")
	p.take(103, 1, at(7))
	require.Equal(t, uint64(4), p.behind())
	require.Equal(t, at(7), p.since())
	p.look(3, 4, at(8))
	require.Equal(t, at(7), p.since(), "four are to come")
	p.see(0)
	p.look(3, 4, at(8))
	require.Equal(t, uint64(1), p.behind(), "what was seen is newer than what was asked")
	p.take(105, 1, at(9))
	require.True(t, p.since().IsZero())
	p.look(4, 0, at(20))
	p.see(1)
	p.take(109, 1, at(10))
	require.Equal(t, at(20), p.since())
	p.look(5, 0, at(30))
	require.Zero(t, p.behind(), "the last one was removed")

	require.Equal(t, uint64(100), p.enter(streamInfo(at(0), 200), at(40), 10),
		"the same stream goes on")
	p.begin(3)
	require.Equal(t, uint64(3), p.behind())
	require.Equal(t, at(30), p.since())
	require.Equal(t, uint64(41), p.enter(streamInfo(at(0), 50), at(50), 10), "it has lost its tail")
	require.Equal(t, uint64(1), p.enter(streamInfo(at(55), 7), at(60), 10),
		"another one is read from its beginning")
	p.begin(7)
	require.Equal(t, uint64(7), p.behind())
	require.Equal(t, at(60), p.since())
	require.Equal(t, uint64(1), p.enter(streamInfo(at(55), 7), at(60), 1000))
}

// A Runner goes on from the watermark of the one before, once: after that from where it stands
// itself. What it looks at again, before there, takes it no way back.
func TestAPlaceAfterAnotherRunner(t *testing.T) {
	t.Parallel()
	var p place
	p.resume(watermark{Created: at(0), Seq: 40})
	require.Equal(t, uint64(31), p.enter(streamInfo(at(0), 100), at(5), 10))
	p.begin(70)
	p.take(35, 5, at(1))
	require.Equal(t, uint64(40), p.seq)
	p.take(90, 55, at(2))
	require.Equal(t, uint64(81), p.enter(streamInfo(at(0), 100), at(6), 10))

	var again place
	again.resume(watermark{Created: at(0), Seq: 40})
	require.Equal(t, uint64(1), again.enter(streamInfo(at(3), 100), at(5), 10),
		"the stream was made again since: nothing of it is projected")
}
