package index

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// oracleRow is a row with the members by which lists are filtered.
type oracleRow struct {
	RowView
	result, reason, detail, actor string
	begins                        bool // its run
}

func rowsIn(all []oracleRow) (rows []RowView) {
	for i := range all {
		rows = append(rows, all[i].RowView)
	}
	return rows
}

// oracleRows answers by looking through all messages.
type oracleRows struct {
	rows []oracleRow
	run  []string
	key  []string // of accepting rows
}

func newOracle(messages []message) *oracleRows {
	o := &oracleRows{}
	for _, m := range messages {
		e := newEntry(m.seq, m.subject, m.header)
		row := oracleRow{result: e.result, reason: e.reason, detail: e.detail, actor: e.actor,
			RowView: RowView{Seq: m.seq, At: instant(e.At), Town: e.town, Kind: e.kind,
				LastRunSeq: e.LastRunSeq, Flags: e.Flags}}
		runID := m.header.Get(wire.RunIDHeader)
		if run, is := strings.CutPrefix(m.subject, layout.RunSubject("w", "")); is {
			runID = cmp.Or(runID, run)
		}
		if runID != "" {
			status := runevents.RunStatusPending
			row.begins = true
			for i, run := range o.run {
				if run == runID {
					status, row.begins = o.rows[i].Status, false
				}
			}
			for eventType := range strings.SplitSeq(e.runEventTypes, ",") {
				if next, ok := runevents.NextRunStatus(status, runevents.EventType(eventType)); ok {
					status = next
				}
			}
			if row.Status = status; status.Terminal() {
				row.Flags |= Ended
			}
		}
		key := ""
		if e.has(consumesKey) {
			key = m.header.Get(layout.KeyHeader)
		}
		o.rows, o.run, o.key = append(o.rows, row), append(o.run, runID), append(o.key, key)
	}
	return o
}

func (o *oracleRows) accepted(town, key string) (seq uint64) {
	for i, r := range o.rows {
		if o.key[i] == key && key != "" && (town == "" || r.Town == town) {
			seq = r.Seq
		}
	}
	return seq
}

func (o *oracleRows) findRun(runID string) (run Run) {
	for i, r := range o.rows {
		if o.run[i] == runID {
			run.Town, run.Rows = cmp.Or(run.Town, r.Town), append(run.Rows, r.RowView)
		}
	}
	return run
}

func (o *oracleRows) lastAt(town, runID string) (at time.Time) {
	for i, r := range o.rows {
		if (r.Town == town && town != "" || o.run[i] == runID && runID != "") && r.At.After(at) {
			at = r.At
		}
	}
	return at
}

// waiting returns the first rows of the runs that waited and have not ended.
func (o *oracleRows) waiting() (seqs []uint64) {
	for i, first := range o.rows {
		if !first.begins || first.Kind != machine.KindRunEvents {
			continue
		}
		if rows := o.findRun(o.run[i]).Rows; rows[len(rows)-1].Flags&Ended == 0 {
			seqs = append(seqs, first.Seq)
		}
	}
	return seqs
}

// runs returns all runs that pass a filter, in its order.
func (o *oracleRows) runs(f Filter) (seqs []uint64) {
	type place struct{ order, first uint64 }
	var found []place
	for i, first := range o.rows {
		if !first.begins {
			continue
		}
		rows, newest, order := o.findRun(o.run[i]).Rows, first, first.Seq
		for j, r := range o.rows {
			if o.run[j] == o.run[i] {
				newest = r
			}
		}
		pass := (f.Status == "" || f.Status == string(newest.Status) ||
			f.Status == newest.result) &&
			(f.ActorID == "" || layout.ActorToken(f.ActorID) == first.actor) &&
			(f.Type == "" || f.Type == first.detail) &&
			(f.Reason == "" || f.Reason == newest.reason) &&
			(len(f.Towns) == 0 || slices.Contains(f.Towns, first.Town))
		if f.AfterMark == nil {
			pass = pass && !first.At.Before(f.From) && (f.To.IsZero() || first.At.Before(f.To))
		} else if behind := slices.IndexFunc(rows, func(r RowView) bool {
			return r.Seq > *f.AfterMark
		}); behind < 0 {
			pass = false
		} else {
			order = rows[behind].Seq
		}
		if pass {
			found = append(found, place{order, first.Seq})
		}
	}
	slices.SortFunc(found, func(a, b place) int {
		if f.Oldest || f.AfterMark != nil {
			return cmp.Compare(a.order, b.order)
		}
		return cmp.Compare(b.order, a.order)
	})
	for _, p := range found {
		seqs = append(seqs, p.first)
	}
	return seqs
}

func (g *generator) filter(o *oracleRows, end uint64) Filter {
	f := Filter{
		Status:  pick(g, "", "", "executed", "COMPLETED", "RUNNING", "nonsense"),
		ActorID: pick(g, "", "", "ann", "b b", "nobody"),
		Type:    pick(g, "", "", "PROJECT_ADVANCE", "NONSENSE"), Oldest: pick(g, true, false),
		Reason: pick(g, "", "", "", "EXECUTED", "NONSENSE"),
		Towns:  pick(g, nil, nil, []string{"t1"}, []string{"ghost"}, []string{"t1", "t2", "ghost"}),
	}
	at := func() time.Time {
		if len(o.rows) == 0 {
			return time.UnixMilli(g.at)
		}
		return pick(g, o.rows...).At.Add(time.Duration(g.IntN(3) - 1))
	}
	if g.IntN(4) == 0 {
		f.From = at()
	}
	if g.IntN(4) == 0 {
		f.To = at()
	}
	if g.IntN(4) == 0 {
		mark := g.Uint64N(end + 2)
		f.AfterMark = &mark
	}
	return f
}

// pages reads a list page by page.
func pages(t *testing.T, ix *Index, f Filter, limit int) (seqs []uint64) {
	t.Helper()
	for after := uint64(0); ; {
		page := ix.Runs(f, after, limit)
		require.LessOrEqual(t, len(page.Runs), limit)
		require.LessOrEqual(t, len(page.Runs), page.Searched)
		require.Equal(t, page.Searched == 0, page.To.IsZero())
		for i := range page.Runs {
			seqs = append(seqs, page.Runs[i].Rows[0].Seq)
		}
		if page.Next == 0 {
			return seqs
		}
		require.NotEqual(t, after, page.Next)
		after = page.Next
	}
}

// Every query answers as the oracle does, for random messages.
func TestIndex_AnswersAsOracle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			g := newGenerator(seed)
			l := randomLog(g, g.IntN(150))
			l.forget(func(message) bool { return g.IntN(10) == 0 })
			o, ix := newOracle(l.messages), open(t, l, "")
			defer ix.Close()
			requireFound(t, o, ix)
			requireTowns(t, o, ix)
			requireResults(t, g, o, ix)
			requireLists(t, g, o, ix)
			for range 50 {
				f := g.filter(o, l.end)
				require.Equal(t, o.runs(f), pages(t, ix, f, 1+g.IntN(20)), "%+v", f)
			}
		})
	}
}

// Put messages that are ahead of a gap count for Accepted and LastAt.
func TestIndex_MessagesAhead(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		g := newGenerator(seed)
		l := randomLog(g, 80)
		cut := 1 + g.IntN(79)
		ahead := l.messages[cut:]
		l.messages, l.end = l.messages[:cut-1], uint64(cut-1)
		ix := open(t, l, "")
		for _, i := range g.Perm(len(ahead)) {
			ix.Put(ahead[i].seq, ahead[i].subject, ahead[i].header)
		}
		o := newOracle(slices.Concat(l.messages, ahead))
		for run := -1; run < 40; run++ {
			town, id := fmt.Sprintf("t%d", g.IntN(6)), fmt.Sprintf("run-%d", run)
			require.Equal(t, o.lastAt(town, id), ix.LastAt(town, id))
			town, key := pick(g, "", town), fmt.Sprintf("key-%d", run)
			seq, _ := ix.Accepted(town, key)
			require.Equal(t, o.accepted(town, key), seq)
		}
		require.EqualValues(t, cut-1, ix.Position())
		require.NoError(t, ix.Close())
	}
}

func requireFound(t *testing.T, o *oracleRows, ix *Index) {
	t.Helper()
	towns := []string{"", "t0", "t1", "t2", "t3", "t4", "ghost", layout.UnknownTownToken}
	for i := -1; i < 20; i++ {
		key := fmt.Sprintf("key-%d", i)
		for _, town := range towns {
			seq, found := ix.Accepted(town, key)
			require.Equal(t, o.accepted(town, key), seq, "%s in %s", key, town)
			require.Equal(t, seq > 0, found)
		}
	}
	require.Equal(t, o.waiting(), ix.OpenRunStarts())
	for i := -1; i < 40; i++ {
		id := fmt.Sprintf("run-%d", i)
		run, found := ix.Run(id, 0)
		require.Equal(t, o.findRun(id), run)
		require.Equal(t, len(run.Rows) > 0, found)
		last := uint32(0)
		for _, r := range run.Rows {
			last = max(last, r.LastRunSeq)
		}
		require.EqualValues(t, last, run.LastSeq())
		for _, town := range towns {
			require.Equal(t, o.lastAt(town, id), ix.LastAt(town, id))
			require.Equal(t, o.lastAt(town, ""), ix.LastAt(town, ""))
		}
	}
	_, found := ix.Run("", 0)
	require.False(t, found)
	_, found = ix.Accepted("", "")
	require.False(t, found)
}

func requireTowns(t *testing.T, o *oracleRows, ix *Index) {
	t.Helper()
	newest, doubt := map[string]oracleRow{}, map[string]oracleRow{}
	var all []uint64
	for _, r := range o.rows {
		all = append(all, r.Seq)
		if r.Flags&onTownSubject != 0 {
			newest[r.Town] = r
			switch r.Kind {
			case machine.KindPause, machine.KindPending, machine.KindCancelled,
				machine.KindAsked, machine.KindDecided:
			default:
				doubt[r.Town] = r
			}
		}
	}
	for _, flag := range []Flag{0, Pending, Paused, ApprovalWaiting, InDoubt, Removed} {
		var tokens []string
		for token, r := range newest {
			is := r.Flags&flag == flag
			if flag == InDoubt {
				is = apply.MayBeApplied(doubt[token].reason)
			}
			if is && (flag == Removed || r.Flags&Removed == 0) {
				tokens = append(tokens, token)
			}
		}
		slices.Sort(tokens)
		require.Equal(t, tokens, ix.Towns(flag))
	}
	require.Equal(t, len(all), ix.Rows())
}

// requireLists compares the lists in the order of the log with walks through all rows.
func requireLists(t *testing.T, g *generator, o *oracleRows, ix *Index) {
	t.Helper()
	for range 20 {
		at, limit := g.Uint64N(ix.Position()+2), 1+g.IntN(10)
		town, skipped := pick(g, "", "t1", "ghost"), at
		var appended, approvals, later []RowView
		for _, r := range o.rows {
			asked := r.Kind == machine.KindAsked || r.Kind == machine.KindDecided
			if asked && r.Seq > at && r.Town == town && len(later) < limit {
				later = append(later, r.RowView)
			}
			if r.Kind == machine.KindAppended && r.Seq > at && len(appended) < limit {
				appended = append(appended, r.RowView)
			}
			if r.Seq == skipped+1 && !slices.Contains([]string{"", layout.UnknownTownToken, "t1", "t2"},
				r.Town) {
				skipped++
			}
		}
		for _, r := range slices.Backward(o.rows) {
			asked := r.Kind == machine.KindAsked || r.Kind == machine.KindDecided
			if asked && (at == 0 || r.Seq < at) && (town == "" || r.Town == town) &&
				len(approvals) < limit {
				approvals = append(approvals, r.RowView)
			}
		}
		require.Equal(t, appended, ix.Appended(at, limit))
		require.Equal(t, approvals, ix.Approvals(town, at, limit))
		require.Equal(t, later, ix.ApprovalsAfter(town, at, limit))
		require.Equal(t, skipped, ix.Skip([]string{"t1", "t2", "nowhere"}, at))
	}
}
