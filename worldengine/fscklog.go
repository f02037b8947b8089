package worldengine

import (
	"strconv"

	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// fsckLog checks the messages of the log, each by itself and against what came before it: the state
// of its town, the events of its run. It does no I/O.
type fsckLog struct {
	world   string
	counts  *FsckCounts
	towns   map[string]fsckTown // by the subject of the town's history
	control fsckControl
	runs    map[string]*fsckRun // until they end
}

func newFsckLog(world string, counts *FsckCounts) *fsckLog {
	return &fsckLog{world: world, counts: counts, towns: map[string]fsckTown{}, runs: map[string]*fsckRun{}}
}

// fsckVerdict is what is wrong with one message of the log. What is wrong with its place in the
// history of its town counts only while the message at before, which it was compared with, is still
// kept: a history that is full gives up its oldest messages while it is read.
type fsckVerdict struct {
	message *fsckMessage
	stream  string
	own     []FsckFinding
	history []FsckFinding
	before  uint64
}

func (v *fsckVerdict) finding(what, want, got string) FsckFinding {
	return FsckFinding{
		Stream: v.stream, Sequence: v.message.seq, Subject: v.message.Subject(), Town: v.message.town,
		What: what, Want: want, Got: got,
	}
}

// want reports a value of the message that is not the one that it has to be.
func (v *fsckVerdict) want(what, want, got string) {
	if want != got {
		v.own = append(v.own, v.finding(what, want, got))
	}
}

// follows reports a value that does not follow from the town's message before.
func (v *fsckVerdict) follows(what, want, got string) {
	if want != got {
		v.history = append(v.history, v.finding(what, want, got))
	}
}

// check checks the next message of the log.
func (l *fsckLog) check(m *fsckMessage) *fsckVerdict {
	v := &fsckVerdict{message: m, stream: LogStream(l.world)}
	l.counts.Messages++
	rec, err := readRecord(m.Data())
	if err != nil {
		v.want("the record cannot be read", recordVersion, err.Error())
		l.forget(m)
		return v
	}
	m.town = rec.TownID
	v.want("the header does not say the kind of the record",
		string(rec.Kind), m.Headers().Get(kindHeader))
	l.ofKind(v, rec)
	return v
}

func (l *fsckLog) ofKind(v *fsckVerdict, rec *record) {
	switch kind := rec.Kind; {
	case kind == kindControl && rec.TownID == "":
		l.ofWorld(v, rec)
	case kind.ofTown():
		l.ofTown(v, rec)
	case kind == kindSignal:
		l.signal(v, rec)
	case kind == kindRefused:
		l.refused(v, rec)
	case kind == kindEvents:
		l.appended(v, rec)
	case kind == kindRun:
		l.between(v, rec)
	default:
		v.want("a record of a kind that this program does not know", "", string(kind))
		l.forget(v.message)
	}
}

// forget makes the town of an unreadable message one whose state is not known.
func (l *fsckLog) forget(m *fsckMessage) {
	if m.Subject() == controlSubject(l.world) {
		l.control = fsckControl{}
	}
	if prior, ok := l.towns[m.Subject()]; ok {
		l.towns[m.Subject()] = prior.next(m.seq)
	}
}

// ofTown checks a message of a town's history.
func (l *fsckLog) ofTown(v *fsckVerdict, rec *record) {
	subject := v.message.Subject()
	prior, seen := l.towns[subject]
	if !seen {
		l.counts.Towns++
	}
	v.want("the record stands on the subject of another town", logSubject(l.world, TownToken(rec.TownID)), subject)
	state := checkState(v, rec)
	now := prior.next(v.message.seq)
	if state == nil {
		l.towns[subject] = now
		return
	}
	now.known, now.seq, now.epoch, now.hash = true, v.message.seq, state.Epoch(), state.Hash
	now.apply, now.paused, now.pending = rec.Apply, rec.Paused, rec.Pending
	l.towns[subject] = now
	if prior.known {
		v.before = prior.seq
		v.carries(rec.Kind, &prior, &now)
	}
	switch rec.Kind {
	case kindPut:
		l.counts.Puts++
		v.settled(rec)
	case kindControl:
		l.ofTownControl(v, rec, state, &prior)
	case kindPending:
		l.pending(v, rec, state, &prior)
	case kindHandoff:
		l.counts.Accepted++
		v.settled(rec)
		l.handoff(v, rec, state, &prior)
	}
}

// checkState checks the state of a town's record by itself, and returns it, or nil.
func checkState(v *fsckVerdict, rec *record) *town.State {
	header := v.message.Headers()
	if encoded := percentEncode(rec.TownID); len(encoded) <= maxTownHeader {
		v.want("the header does not name the town", encoded, header.Get(townHeader))
	}
	state, err := town.Parse(rec.Snapshot, schemas.Limits{Bytes: len(rec.Snapshot) + 1})
	if err != nil {
		v.want("the stored state is not a snapshot.v1", "", err.Error())
		return nil
	}
	v.want("the stored state is not in its canonical form", string(state.Canonical), string(rec.Snapshot))
	v.want("the header is not the hash of the stored state", state.Hash, header.Get(hashHeader))
	v.want("the header is not the day of the stored state", text(state.Epoch()), header.Get(epochHeader))
	v.want("the stored state is that of another town", rec.TownID, state.Snapshot.TownID)
	return &state
}

func stateText(hash *string, epoch *int64) string {
	if hash == nil || epoch == nil {
		return "none"
	}
	return "day " + text(*epoch) + ", " + *hash
}

func text(n int64) string { return strconv.FormatInt(n, 10) }
