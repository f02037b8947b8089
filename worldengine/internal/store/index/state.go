package index

import (
	"slices"
	"sort"
	"strings"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/records"
)

// state has the rows and the look-ups in them. It is not safe for concurrent use, but rows and
// names, once added, never change.
type state struct {
	tokens    dictionary[string] // of towns
	actors    dictionary[string]
	labels    dictionary[labels]
	chunks    []*[chunkRows]packedRow
	count     uint32 // number of rows; the newest row has this number
	position  uint64 // up to here the state has every kept message of the log
	towns     []townRows
	runs      []rowList
	open      map[uint32]struct{} // runs of handoffs that wait or are being applied
	results   []resultLists       // of each town, and of the world under number 0
	keys      table               // the newest accepting row of a key in a town
	anyKeys   table               // of a key in any town
	runIDs    table               // run numbers
	holes     map[uint32]struct{} // towns with a hole
	approvals []uint32            // rows that began to wait for a decision, or got one
	// inconsistent are the rows that made a run INCONSISTENT.
	inconsistent []uint32
}

// chunkRows is how many rows are allocated together, so that growing copies none, and a small world
// takes little memory.
const chunkRows = 1 << 8

// rowList is the rows of a town or of a run.
type rowList struct {
	first, last uint32
	at          int64 // the latest At of all rows
}

// townRows describes the rows on a town's log subject, beside the chain of all its rows.
type townRows struct {
	rowList
	newest uint32 // the newest row on the log subject
	flags  Flag   // of the town after that row
	// hole is the newest row on the log subject whose predecessor is not the row before it, 0 if there
	// is none; before is the number of the row that stands in the predecessor's place, 0 for none.
	hole, before uint32
	gaps         records.Gaps // that repairs have given up
	givenUp      uint32       // rows in the gaps
	required     records.RequiredHistory
	maxEpoch     int64 // the highest epoch before the newest row
}

// dictionary numbers names from 1, in the order of the log; 0 is the empty name.
type dictionary[T comparable] struct {
	names   []T
	numbers map[T]uint32
}

func newDictionary[T comparable]() dictionary[T] {
	var empty T
	return dictionary[T]{[]T{empty}, map[T]uint32{empty: 0}}
}

// number returns the number of a name, and numbers a clone of a new name: name itself would keep a
// whole message in memory.
func (d *dictionary[T]) number(name T, clone func(T) T) uint32 {
	n, known := d.numbers[name]
	if !known {
		n, name = uint32(len(d.names)), clone(name)
		d.names, d.numbers[name] = append(d.names, name), n
	}
	return n
}

// newState returns a state without rows, with room for some. Number 0 stands for none.
func newState(rows int64) *state {
	s := &state{tokens: newDictionary[string](), actors: newDictionary[string](),
		labels: newDictionary[labels](), towns: make([]townRows, 1), runs: make([]rowList, 1),
		results: make([]resultLists, 1), open: map[uint32]struct{}{}, holes: map[uint32]struct{}{}}
	s.keys = newTable(rows, func(n uint32) uint64 { return keyInTown(s.row(n).Key, s.row(n).town) })
	s.anyKeys = newTable(rows, func(n uint32) uint64 { return s.row(n).Key })
	s.runIDs = newTable(rows, func(n uint32) uint64 { return s.first(n).RunID })
	return s
}

// keyInTown mixes the town into the fingerprint of the key.
func keyInTown(key uint64, town uint32) uint64 { return key ^ uint64(town)*0x9E3779B97F4A7C15 }

// row returns row n; n begins with 1.
func (s *state) row(n uint32) *packedRow { return &s.chunks[(n-1)/chunkRows][(n-1)%chunkRows] }

func (s *state) labelsOf(r *packedRow) *labels { return &s.labels.names[r.labelsID] }

// add adds a log message after position, and moves position to it.
func (s *state) add(e *entry) {
	before := runevents.RunStatus("")
	if run := s.runNumber(e.RunID); run != 0 {
		before = s.labelsOf(s.last(run)).status
	}
	e.advanceStatus(before)
	s.insert(e)
}

// runNumber returns the number of a run, 0 if it has no rows.
func (s *state) runNumber(runID uint64) uint32 {
	if runID == 0 {
		return 0
	}
	return s.runIDs.get(runID)
}

// first and last return the first and the last row of a run.
func (s *state) first(run uint32) *packedRow { return s.row(s.runs[run].first) }
func (s *state) last(run uint32) *packedRow  { return s.row(s.runs[run].last) }

// insert adds and links the row of an entry whose status is set.
func (s *state) insert(e *entry) {
	if s.count%chunkRows == 0 {
		s.chunks = append(s.chunks, new([chunkRows]packedRow))
	}
	s.count, s.position = s.count+1, e.Seq
	n := s.count
	r := s.row(n)
	*r = packedRow{rowFields: e.rowFields,
		town:     s.tokens.number(e.town, strings.Clone),
		actor:    s.actors.number(e.actor, strings.Clone),
		labelsID: s.labels.number(e.labels, labels.clone), run: s.runNumber(e.RunID)}
	r.Flags &^= Ended
	if e.status.Terminal() {
		r.Flags |= Ended
	}
	if r.run == 0 && r.RunID != 0 {
		r.run = uint32(len(s.runs))
		s.runs = append(s.runs, rowList{first: n})
		s.runIDs.put(r.run)
	}
	if r.run != 0 {
		r.prevRun = s.runs[r.run].extend(n, r.At)
		s.noteOpen(r)
	}
	for len(s.towns) <= int(r.town) {
		s.towns, s.results = append(s.towns, townRows{}), append(s.results, nil)
	}
	if r.town != 0 {
		r.prevTown = s.towns[r.town].extend(n, r.At)
	}
	if r.has(onTownSubject) {
		s.noteTown(n, r)
	}
	if r.has(consumesKey) {
		s.keys.put(n)
		s.anyKeys.put(n)
	}
	if r.has(Inconsistent) {
		s.inconsistent = append(s.inconsistent, n)
	}
	s.addResult(n, r)
}

// noteOpen notes whether the handoff of a row's run waits, or is being applied, after the row.
func (s *state) noteOpen(r *packedRow) {
	switch first := s.labelsOf(s.first(r.run)).kind.Spec(); {
	case !first.LeavesRunOpen || first.Foreign:
	case r.has(Ended):
		delete(s.open, r.run)
	default:
		s.open[r.run] = struct{}{}
	}
}

// noteTown notes the flags of a town after row n on its log subject. A later result, put or removal
// ends a doubt.
func (s *state) noteTown(n uint32, r *packedRow) {
	town := &s.towns[r.town]
	doubt := town.flags & InDoubt
	spec := s.labelsOf(r).kind.Spec()
	s.link(town, n, r)
	if !spec.LeavesState {
		doubt = 0
		if apply.MayBeApplied(s.labelsOf(r).reason) {
			doubt = InDoubt
		}
	}
	town.newest, town.flags = n, r.Flags|doubt
	if spec.Approval {
		s.approvals = append(s.approvals, n)
	}
}

// link adds row n to its town's chain: whether it follows the row before it, its ordinal, the town's required
// history with it, and the gaps that a repair gives up.
func (s *state) link(t *townRows, n uint32, r *packedRow) {
	r.ordinal = 1
	last := uint64(0)
	if t.newest != 0 {
		newest := s.row(t.newest)
		last, r.ordinal = newest.Seq, newest.ordinal+1
	}
	if t.maxEpoch = max(t.maxEpoch, t.required.Epoch); r.Epoch == t.required.Epoch || r.Epoch > t.maxEpoch {
		t.required.Add(r.Epoch, s.failed(r), r.has(Pending))
	} else {
		t.required = s.recount(t, r.Epoch)
	}
	switch has := s.labelsOf(r); {
	case has.kind == machine.KindRepair:
		s.giveUp(t, n, has.detail)
	case r.Guard != last:
		t.hole, t.before = n, t.newest
	}
	if t.hole != 0 {
		s.holes[r.town] = struct{}{}
	} else {
		delete(s.holes, r.town)
	}
}

// giveUp notes the gaps of the town's next row, which is a repair. Holes that no gap explains
// stay. A record of an earlier program names no gaps: it gave up the newest hole.
func (s *state) giveUp(t *townRows, n uint32, text string) {
	repair, before := s.row(n), uint64(0)
	if t.newest != 0 {
		before = s.row(t.newest).Seq
	}
	gaps := records.ReadGaps(text, repair.Seq)
	if text == "" {
		if t.hole != 0 && t.before != 0 {
			before = s.row(t.before).Seq
		} else if t.hole != 0 {
			before = 0
		}
		gaps = records.Gaps{{After: before, Before: repair.Seq}}
	}
	t.gaps = append(t.gaps, gaps...)
	t.hole, t.before, t.givenUp = 0, 0, 0
	last := uint64(0)
	for _, r := range s.rows(n, 0, func(r *packedRow) uint32 { return r.prevTown }) {
		if !r.has(onTownSubject) {
			continue
		}
		if r.Guard != last && !t.gaps.Cover(last, r.Seq) {
			t.hole, t.before = s.rowNumber(r.Seq), s.rowNumber(last)
		}
		if t.gaps.Has(r.Seq) {
			t.givenUp++
		}
		last = r.Seq
	}
}

// rowNumber returns the number of the row of a message; 0 for the sequence 0.
func (s *state) rowNumber(seq uint64) uint32 {
	if seq == 0 {
		return 0
	}
	return s.firstAfter(seq - 1)
}

// failed reports whether a handoff that failed has consumed the row's key.
func (s *state) failed(r *packedRow) bool {
	return r.has(consumesKey) && s.labelsOf(r).result == string(handoff.Failed)
}

// recount counts the needs of a town that has come to an epoch again: a repair has
// lowered its epoch.
func (s *state) recount(t *townRows, epoch int64) records.RequiredHistory {
	needs := records.RequiredHistory{Epoch: epoch}
	for _, r := range s.rows(t.last, 0, func(r *packedRow) uint32 { return r.prevTown }) {
		if r.has(onTownSubject) {
			needs.Count(s.failed(r) && r.Epoch == epoch, r.has(Pending))
		}
	}
	return needs
}

// extend adds a row to a chain and returns the one before it.
func (c *rowList) extend(n uint32, at int64) (before uint32) {
	before, c.last, c.at = c.last, n, max(c.at, at)
	if c.first == 0 {
		c.first = n
	}
	return before
}

// firstAfter returns the number of the first row after a sequence; count+1 if there is none.
func (s *state) firstAfter(seq uint64) uint32 {
	return 1 + uint32(sort.Search(int(s.count), func(i int) bool {
		return s.row(uint32(i)+1).Seq > seq
	}))
}

// entry returns a row with its names.
func (s *state) entry(r *packedRow) entry {
	return entry{rowFields: r.rowFields, labels: *s.labelsOf(r), town: s.tokens.names[r.town],
		actor: s.actors.names[r.actor]}
}

// view returns a row as readers get it.
func (s *state) view(r *packedRow) RowView {
	w := s.labelsOf(r)
	return RowView{Seq: r.Seq, At: instant(r.At), Town: s.tokens.names[r.town],
		Kind: w.kind, Status: w.status, LastRunSeq: r.LastRunSeq,
		Flags: r.Flags}
}

// instant returns the time of a number of ms, the zero time for 0.
func instant(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(at).UTC()
}

// rows returns the rows of a chain after a sequence, ascending; prev returns the number of the row
// before a row.
func (s *state) rows(last uint32, after uint64, prev func(*packedRow) uint32) []*packedRow {
	var rows []*packedRow
	for n := last; n != 0 && s.row(n).Seq > after; n = prev(s.row(n)) {
		rows = append(rows, s.row(n))
	}
	slices.Reverse(rows)
	return rows
}
