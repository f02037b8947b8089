package index

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

// replica is a log of which a request may be answered by a node that is behind: End and EachAfter
// then stop at an earlier message, as NATS does without a leader.
type replica struct {
	*memoryLog
	g *generator
}

func (r *replica) readTo() uint64 {
	end, _ := r.memoryLog.End(context.Background())
	if r.g.IntN(2) == 0 {
		return end
	}
	return r.g.Uint64N(end + 1)
}

func (r *replica) End(context.Context) (uint64, error) { return r.readTo(), nil }

func (r *replica) EachAfter(ctx context.Context, seq uint64, v visit) (uint64, error) {
	until := r.readTo()
	_, err := r.memoryLog.EachAfter(ctx, seq, func(seq uint64, subject string, h nats.Header) error {
		if seq > until {
			return nil
		}
		return v(seq, subject, h)
	})
	return max(seq, until), err
}

// An index never moves over a message that it has not read, whatever ends it is told.
func TestIndex_EndGoesBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		g := newGenerator(seed)
		l := randomLog(g, 40)
		ix, err := Open(t.Context(), Config{World: "w", Source: &replica{l, g},
			Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		for ix.Position() < l.end {
			ix.readLock <- struct{}{}
			_ = ix.readNew(t.Context()) // it reports that it came less far
			<-ix.readLock
			require.Equal(t, int(ix.Position()), ix.Rows(), "seed %d: rows are missing", seed)
		}
		require.NoError(t, ix.Close())
	}
}

// chained returns the header of a record on a town's log subject.
func chained(kind machine.Kind, guard uint64, epoch int64, result string) nats.Header {
	h := nats.Header{layout.KindHeader: {string(kind)}, layout.EpochHeader: {strconv.FormatInt(epoch, 10)}}
	h.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(guard, 10))
	if result != "" {
		h.Set(layout.ResultHeader, result)
		h.Set(layout.KeyHeader, fmt.Sprint("key-", guard))
	}
	return h
}

// history appends random records of some towns, each guarded by the one before it, and messages of
// no town's history between them.
func (g *generator) history(l *memoryLog, n int) {
	last, epochs := map[string]uint64{}, map[string]int64{}
	for range n {
		town := fmt.Sprint("t", g.IntN(4))
		result := pick(g, "", "failed PROJECT_BLOCKED", "executed EXECUTED")
		kind := machine.KindConcluded
		switch {
		case g.IntN(5) == 0:
			l.append(layout.RefusedSubject("w", town), nats.Header{layout.KindHeader: {"refused"}})
			continue
		case result == "":
			kind = machine.KindPause
		case result == "executed EXECUTED":
			epochs[town]++
		}
		last[town] = l.append(layout.LogSubject("w", town),
			chained(kind, last[town], epochs[town], result)).seq
	}
}

// oracleChain computes a chain by looking at all messages of a town's history.
func oracleChain(l *memoryLog, town string) (c Chain) {
	var all []message
	for _, m := range l.messages {
		if m.subject == layout.LogSubject("w", town) {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return c
	}
	newest := all[len(all)-1]
	c.Town, c.Newest = town, newest.seq
	for i, m := range slices.Backward(all) {
		before := uint64(0)
		if i > 0 {
			before = all[i-1].seq
		}
		c.Linked++
		if guard, _ := commitlog.GuardOf(m.header); guard != before {
			c.Hole, c.Missing, c.Before = m.seq, guard, before
			break
		}
	}
	return c
}

// A town's chain has a hole exactly if a record is missing between its newest record and its oldest,
// or before the oldest; also after the index was read from its file.
func TestRowList_HolesOfRandomLogs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		g, l := newGenerator(seed), &memoryLog{minHistory: math.MaxUint64}
		g.history(l, 5+g.IntN(60))
		lost := g.IntN(4)
		l.lose(func(m message) bool { return lost > 0 && m.seq < l.end && g.IntN(10) < lost })
		dir := t.TempDir()
		ix := open(t, l, dir)
		for range 2 {
			var broken []Chain
			for n := range 4 {
				town := fmt.Sprint("t", n)
				want := oracleChain(l, town)
				require.Equal(t, want, ix.Chain(town), "seed %d, town %s", seed, town)
				if want.Hole != 0 {
					broken = append(broken, want)
				}
			}
			require.ElementsMatch(t, broken, ix.BrokenChains(), "seed %d", seed)
			require.True(t, lost > 0 || broken == nil)
			require.NoError(t, ix.Close())
			ix = open(t, l, dir)
		}
		require.NoError(t, ix.Close())
	}
}

// A repair gives up the gaps that its record names, and nothing else.
func TestRowList_Repaired(t *testing.T) {
	t.Parallel()
	subject := layout.LogSubject("w", "t")
	repaired := func(gaps string, guard uint64) nats.Header {
		h := chained(machine.KindRepair, guard, 1, "")
		if gaps != "" {
			h.Set(layout.GapsHeader, gaps)
		}
		return h
	}
	for name, c := range map[string]struct {
		repair    nats.Header
		hole      uint64 // that stays
		givenUp   []uint64
		otherRows bool // the index has the rows of the lost records
	}{
		"a hole":                    {repair: repaired("1-3", 5), givenUp: []uint64{2}},
		"a hole, known":             {repair: repaired("1-3", 5), givenUp: []uint64{2}, otherRows: true},
		"another hole":              {repair: repaired("3-5", 5), hole: 3, givenUp: []uint64{4}},
		"the end":                   {repair: repaired("3-", 0), hole: 3, givenUp: []uint64{4, 5}},
		"by an earlier program":     {repair: repaired("", 0), givenUp: []uint64{2, 3, 4, 5}},
		"nothing, since unreadable": {repair: repaired("x", 5), hole: 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := &memoryLog{minHistory: math.MaxUint64}
			for guard := range uint64(5) {
				l.append(subject, chained(machine.KindPut, guard, 1, ""))
			}
			lose := func() { l.lose(func(m message) bool { return m.seq == 2 }) }
			if !c.otherRows {
				lose()
			}
			ix := open(t, l, "")
			if c.otherRows {
				lose()
			} else {
				require.Equal(t, []Chain{
					{Town: "t", Newest: 5, Hole: 3, Missing: 2, Before: 1, Linked: 3}}, ix.BrokenChains())
			}
			m := l.append(subject, c.repair)
			ix.Put(m.seq, m.subject, m.header)
			require.Equal(t, c.hole, ix.Chain("t").Hole)
			for seq := uint64(1); seq <= 5; seq++ {
				if known := seq != 2 || c.otherRows; known {
					require.Equal(t, !slices.Contains(c.givenUp, seq), ix.MustKeep(seq), "%d", seq)
				}
			}
			require.NoError(t, ix.Close())
		})
	}
}

// The log must keep the records that were committed behind a gap in the index, too.
func TestIndex_MustKeepAhead(t *testing.T) {
	t.Parallel()
	ix := open(t, &memoryLog{minHistory: 10}, "")
	ix.Put(5, layout.LogSubject("w", "t"), chained(machine.KindConcluded, 4, 1, "failed X"))
	seq, found := ix.Accepted("t", "key-4")
	require.True(t, found && ix.MustKeep(seq))
	require.NoError(t, ix.Close())
}

// A compaction never replaces an index by one that knows less: the log must keep the newest record of
// each town, and as many others as it is configured to keep.
func TestCompact_DamagedLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		minHistory uint64
		lost       []uint64
		refused    bool
	}{
		"forgot the oldest":   {minHistory: 3, lost: []uint64{1, 2}},
		"forgot too many":     {minHistory: 4, lost: []uint64{1, 2}, refused: true},
		"lost one between":    {minHistory: 4, lost: []uint64{4}, refused: true},
		"lost the newest":     {minHistory: 1, lost: []uint64{5}, refused: true},
		"lost the whole town": {minHistory: 1, lost: []uint64{1, 2, 3, 4, 5}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			l, subject := &memoryLog{minHistory: c.minHistory}, layout.LogSubject("w", "t")
			for guard := range uint64(5) {
				l.append(subject, chained(machine.KindPut, guard, 1, ""))
			}
			ix := open(t, l, "")
			l.lose(func(m message) bool { return slices.Contains(c.lost, m.seq) })
			err := ix.Rebuild(t.Context())
			if c.refused {
				require.ErrorIs(t, err, ErrKnowsMore)
				require.Equal(t, 5, ix.Rows())
			} else {
				require.NoError(t, err)
				require.Equal(t, 5-len(c.lost), ix.Rows())
			}
			require.NoError(t, ix.Close())
		})
	}
}
