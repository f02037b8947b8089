package index

import (
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
)

// state has the rows and the look-ups in them. It is not safe for concurrent use, but rows and
// names, once added, never change.
type state struct {
	names    [classes]dictionary
	chunks   []*[chunkRows]row
	count    uint32 // number of rows, and of the newest row
	position uint64 // up to here the state has every kept message of the log
	towns    []chain
	runs     []chain
	results  []results           // of each town, and of the world under number 0
	keys     table               // the newest accepting row of a key in a town
	anyKeys  table               // of a key in any town
	runIDs   table               // run numbers
	flagged  map[uint32]struct{} // towns whose newest row on the log subject has a flag of Towns
	doubtful map[uint32]struct{} // towns in doubt
	asked    []uint32            // rows that began to wait for a decision, or got one
}

// chunkRows is how many rows are allocated together, so that growing copies none.
const chunkRows = 1 << 14

// chain is the rows of a town or of a run.
type chain struct {
	first, last uint32
	log         uint32 // the newest row on the log subject of a town
	at          int64  // the latest at of all rows
}

// The classes of names. Names get their numbers in the order of the log.
const (
	townNames = iota
	actorNames
	wordNames // kinds, statuses, reasons, types
	classes
)

// dictionary numbers names from 1.
type dictionary struct {
	names   []string
	numbers map[string]uint32
}

// number returns the number of a name, and numbers a new name. It returns 0 for "", and for a new
// name if there are already limit names.
func (d *dictionary) number(name string, limit int) uint32 {
	n, known := d.numbers[name]
	if !known && len(d.names) <= limit {
		n, name = uint32(len(d.names)), strings.Clone(name) // else it keeps a message in memory
		d.names, d.numbers[name] = append(d.names, name), n
	}
	return n
}

// newState returns a state without rows, with room for some. Number 0 stands for none.
func newState(rows int64) *state {
	s := &state{towns: make([]chain, 1), runs: make([]chain, 1), results: make([]results, 1),
		flagged: map[uint32]struct{}{}, doubtful: map[uint32]struct{}{}}
	for class := range s.names {
		s.names[class] = dictionary{[]string{""}, map[string]uint32{"": 0}}
	}
	s.keys = newTable(rows, func(n uint32) uint64 { return s.row(n).keyInTown() })
	s.anyKeys = newTable(rows, func(n uint32) uint64 { return s.row(n).Key })
	s.runIDs = newTable(rows, func(n uint32) uint64 { return s.row(s.runs[n].first).RunID })
	return s
}

// keyInTown mixes the town into the fingerprint of the key.
func (r *row) keyInTown() uint64 { return keyInTown(r.Key, r.Town) }

func keyInTown(key uint64, town uint32) uint64 { return key ^ uint64(town)*0x9E3779B97F4A7C15 }

// row returns row n; n begins with 1.
func (s *state) row(n uint32) *row { return &s.chunks[(n-1)/chunkRows][(n-1)%chunkRows] }

// word returns the number of a word. The words are closed sets: 65,535 suffice.
func (s *state) word(word string) uint16 {
	return uint16(s.names[wordNames].number(word, math.MaxUint16))
}

// add adds the row of an entry after position, and moves position to the entry.
func (s *state) add(e *entry) {
	s.insert(s.rowOf(e))
}

// rowOf returns the row of an entry, without its links.
func (s *state) rowOf(e *entry) row {
	status := e.status(s.statusBefore(fingerprint(e.runID)))
	return row{
		Seq: e.seq, At: e.at, Key: fingerprint(e.key), RunID: fingerprint(e.runID),
		Town:     s.names[townNames].number(e.town, math.MaxUint32-1),
		Actor:    s.names[actorNames].number(e.actor, math.MaxUint32-1),
		FirstSeq: e.first, LastSeq: e.last, Waited: e.waited, Kind: s.word(e.kind),
		Status: s.word(string(status)), ResultStatus: s.word(e.result),
		Reason: s.word(e.reason), Type: s.word(e.typ), Flags: e.flags | ended(status),
	}
}

func ended(status runevents.RunStatus) Flag {
	if status.Terminal() {
		return Ended
	}
	return 0
}

// statusBefore returns the status of a run after its newest row, "" if it has none.
func (s *state) statusBefore(runID uint64) runevents.RunStatus {
	run := s.run(runID)
	if run == 0 {
		return ""
	}
	return runevents.RunStatus(s.names[wordNames].names[s.row(s.runs[run].last).Status])
}

// run returns the number of a run, 0 if it has no rows.
func (s *state) run(runID uint64) uint32 {
	if runID == 0 {
		return 0
	}
	return s.runIDs.get(runID)
}

// insert links a row after all others, and returns the row as it is in the state.
func (s *state) insert(r row) *row {
	if s.count%chunkRows == 0 {
		s.chunks = append(s.chunks, new([chunkRows]row))
	}
	s.count, s.position = s.count+1, r.Seq
	n := s.count
	into := s.row(n)
	*into = r
	into.Run, into.PrevRun, into.PrevTown = s.run(r.RunID), 0, 0
	into.Flags &^= First
	if into.Run == 0 && r.RunID != 0 {
		into.Run, into.Flags = uint32(len(s.runs)), into.Flags|First
		s.runs = append(s.runs, chain{first: n})
	}
	for len(s.towns) <= int(r.Town) {
		s.towns, s.results = append(s.towns, chain{}), append(s.results, nil)
	}
	if into.Run != 0 {
		into.PrevRun = s.runs[into.Run].extend(n, r.At)
	}
	if into.Town != 0 {
		into.PrevTown = s.towns[into.Town].extend(n, r.At)
	}
	s.find(n, into)
	s.addResult(n, into)
	return into
}

// find makes look-ups of its town, run and key find row n.
func (s *state) find(n uint32, r *row) {
	if r.has(First) {
		s.runIDs.put(r.Run)
	}
	if r.has(OfTown) {
		s.towns[r.Town].log = n
		delete(s.flagged, r.Town)
		if r.has(Pending | Paused | Asked | Removed) {
			s.flagged[r.Town] = struct{}{}
		}
		s.doubt(r)
		switch commitlog.Kind(s.names[wordNames].names[r.Kind]) {
		case commitlog.KindAsked, commitlog.KindDecided:
			s.asked = append(s.asked, n)
		}
	}
	if r.has(accepts) {
		s.keys.put(n)
		s.anyKeys.put(n)
	}
}

// doubt notes whether the town of a row on its log subject is in doubt after it.
func (s *state) doubt(r *row) {
	words := s.names[wordNames].names
	switch {
	case commitlog.Kind(words[r.Kind]).KeepsState():
	case apply.MayBeApplied(words[r.Reason]):
		s.doubtful[r.Town] = struct{}{}
	default:
		delete(s.doubtful, r.Town)
	}
}

// extend adds a row to a chain and returns the one before it.
func (c *chain) extend(n uint32, at int64) (before uint32) {
	before, c.last, c.at = c.last, n, max(c.at, at)
	if c.first == 0 {
		c.first = n
	}
	return before
}

// after returns the number of the first row after a sequence; count+1 if there is none.
func (s *state) after(seq uint64) uint32 {
	return 1 + uint32(sort.Search(int(s.count), func(i int) bool {
		return s.row(uint32(i)+1).Seq > seq
	}))
}

// view returns a row as readers get it.
func (s *state) view(r *row) Row {
	words := s.names[wordNames].names
	return Row{
		Seq: r.Seq, At: instant(r.At), Town: s.names[townNames].names[r.Town],
		Kind: commitlog.Kind(words[r.Kind]), Status: runevents.RunStatus(words[r.Status]),
		ResultStatus: words[r.ResultStatus], Reason: words[r.Reason], Type: words[r.Type],
		ActorID: s.names[actorNames].names[r.Actor], First: r.FirstSeq, Last: r.LastSeq,
		Flags: r.Flags &^ accepts,
	}
}

// instant returns the time of a number of ms, the zero time for 0.
func instant(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(at).UTC()
}

// rows returns the rows of a chain, ascending; prev returns the number of the row before a row.
func (s *state) rows(last uint32, prev func(*row) uint32) []*row {
	var rows []*row
	for n := last; n != 0; n = prev(s.row(n)) {
		rows = append(rows, s.row(n))
	}
	slices.Reverse(rows)
	return rows
}
