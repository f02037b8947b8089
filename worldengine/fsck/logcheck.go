package fsck

import (
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// LogCheck checks the messages of a log in their order, each by itself and against those before it:
// the state of its town, the pause of the world, the events of its run. It does no I/O, and is not
// for concurrent use.
type LogCheck struct {
	// Runs are the runs that have not ended, by their ids.
	Runs map[string]*runState

	world   string
	counts  *Counts
	towns   map[string]townState // by the subject of the town's history
	control controlState
}

// NewLogCheck makes the check of a world's log, which counts its messages in counts.
func NewLogCheck(world string, counts *Counts) *LogCheck {
	return &LogCheck{
		world: world, counts: counts,
		towns: map[string]townState{}, Runs: map[string]*runState{},
	}
}

// Verdict has the findings about one message of the log.
type Verdict struct {
	// Own are about the message itself, History about the one that it follows. History counts only
	// while the message at before, which was compared, is still kept: NATS discards a full
	// history's oldest messages while it is read.
	Own     []Finding
	History []Finding
	before  uint64

	message *commitlog.Message
	stream  string
	onDisk  []uint64 // messages that the record puts aside, and that NATS cannot read
	damaged bool     // it stands on a town's subject, and no engine can load it
	accepts *acceptance
}

func (v *Verdict) finding(what, want, got string) Finding {
	return Finding{
		Stream: v.stream, Sequence: v.message.Seq,
		Subject: v.message.Subject(), Town: v.message.Town,
		What: what, Want: want, Got: got,
	}
}

// want reports a wrong value of the message.
func (v *Verdict) want(what, want, got string) {
	if want != got {
		v.Own = append(v.Own, v.finding(what, want, got))
	}
}

// follows reports a value that does not follow from the town's message before.
func (v *Verdict) follows(what, want, got string) {
	if want != got {
		v.History = append(v.History, v.finding(what, want, got))
	}
}

// Check checks the next message of the log, and sets its Town.
func (l *LogCheck) Check(m *commitlog.Message) *Verdict {
	v := &Verdict{message: m, stream: wire.LogStream(l.world)}
	l.counts.Messages++
	defer l.noteTown(v)
	rec, err := commitlog.ReadRecord(m.Data())
	if err != nil {
		v.want("the record cannot be read", commitlog.RecordVersion, err.Error())
		l.forgetControl(m)
		return v
	}
	m.Town = rec.TownID
	v.want("the header does not name the kind of the record",
		string(rec.Kind), m.Headers().Get(wire.KindHeader))
	l.checkKind(v, rec)
	return v
}

func (l *LogCheck) checkKind(v *Verdict, rec *commitlog.Record) {
	switch kind := rec.Kind; {
	case kind == commitlog.KindControl && rec.TownID == "":
		l.checkWorldControl(v, rec)
	case kind.OfTown():
		l.checkTownRecord(v, rec)
	case kind == commitlog.KindSignal:
		l.checkSignal(v, rec)
	case kind == commitlog.KindRefused:
		l.checkRefused(v, rec)
	case kind == commitlog.KindEvents:
		l.checkAppended(v, rec)
	case kind == commitlog.KindRun:
		l.checkBetween(v, rec)
	default:
		v.want("a record of a kind that this program does not know", "", string(kind))
		l.forgetControl(v.message)
	}
}

// forgetControl makes the world's pause unknown, since a message about it cannot be read.
func (l *LogCheck) forgetControl(m *commitlog.Message) {
	if m.Subject() == wire.ControlSubject(l.world) {
		l.control = controlState{}
	}
}

// noteTown records a message on a town's subject that is no record of the town.
func (l *LogCheck) noteTown(v *Verdict) {
	subject := v.message.Subject()
	if !strings.HasPrefix(subject, wire.LogSubject(l.world, "")) {
		return
	}
	now := l.towns[subject]
	if now.last != v.message.Seq {
		now = now.next(v.message.Seq)
		l.towns[subject] = now
	}
	v.damaged = now.good != v.message.Seq
}

// checkTownRecord checks a message of a town's history.
func (l *LogCheck) checkTownRecord(v *Verdict, rec *commitlog.Record) {
	subject := v.message.Subject()
	prior := l.towns[subject]
	if !prior.named {
		l.counts.Towns++
	}
	v.want("the record stands on the subject of another town",
		wire.LogSubject(l.world, wire.TownToken(rec.TownID)), subject)
	state := checkState(v, rec)
	now := prior.next(v.message.Seq)
	now.named = true
	if state != nil && state.Hash == v.message.Headers().Get(wire.HashHeader) {
		now.good, now.goodHash = v.message.Seq, state.Hash
	}
	if state == nil {
		l.towns[subject] = now
		return
	}
	now.known, now.town = true, rec.Town(v.message.Seq, *state)
	l.towns[subject] = now
	if !prior.known && v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader) == "0" {
		prior.known = rec.Kind == commitlog.KindPut // the town's first record
	}
	if prior.known && rec.Kind != commitlog.KindMend {
		v.before = prior.town.Seq
		v.checkGuard(prior.town.Seq)
	}
	l.checkTownKind(v, rec, state, &prior, &now)
}

// checkTownKind checks a town's record by its kind. A record that an input makes of the town before
// it is made again.
func (l *LogCheck) checkTownKind(
	v *Verdict, rec *commitlog.Record, state *town.State, prior, now *townState,
) {
	switch rec.Kind {
	case commitlog.KindMend:
		l.checkMend(v, rec, prior, now)
		return
	case commitlog.KindPending:
		l.checkPending(v, rec, state, prior)
		return
	case commitlog.KindCancelled:
		v.checkNotPending(rec)
		if l.replay(v, rec) != nil {
			delete(l.Runs, rec.Run.RunID)
		}
	case commitlog.KindHandoff:
		l.counts.Accepted++
		v.checkNotPending(rec)
		l.checkHandoff(v, rec)
	case commitlog.KindPut:
		l.counts.Puts++
		v.checkNotPending(rec)
	case commitlog.KindRemove:
		l.counts.Removals++
		v.checkNotPending(rec)
	case commitlog.KindAsked:
		l.counts.Refused++
		v.checkNotPending(rec)
		l.checkJudged(v, rec)
	case commitlog.KindControl:
		l.counts.Controls++
		v.checkSignalRun(rec, acceptedEvents)
		l.adoptUnknown(v, rec, state, prior)
	case commitlog.KindDecided:
		l.counts.Signals++
		v.checkSignalRun(rec, acceptedEvents)
		l.adoptUnknown(v, rec, state, prior)
	}
	if prior.known {
		v.step(rec, prior.town)
	}
}

// adoptUnknown adopts the command of a record whose town was not known before.
func (l *LogCheck) adoptUnknown(
	v *Verdict, rec *commitlog.Record, state *town.State, prior *townState,
) {
	if !prior.known && rec.Pending != nil {
		v.checkApplication(rec, state)
		l.adopt(rec)
	}
}

// checkState checks the state of a town's record by itself, and returns it, or nil.
func checkState(v *Verdict, rec *commitlog.Record) *town.State {
	header := v.message.Headers()
	if encoded := wire.PercentEncode(rec.TownID); len(encoded) <= commitlog.MaxTownHeader {
		v.want("the header does not name the town", encoded, header.Get(wire.TownHeader))
	}
	state, err := town.ParseStored(rec.Snapshot)
	if err != nil {
		v.want("the stored state is not a snapshot.v1", "", err.Error())
		return nil
	}
	v.want("the stored state is not in its canonical form",
		string(state.Canonical), string(rec.Snapshot))
	v.want("the header is not the hash of the stored state",
		state.Hash, header.Get(wire.HashHeader))
	v.want("the header is not the day of the stored state",
		Text(state.Epoch()), header.Get(wire.EpochHeader))
	v.want("the stored state is that of another town", rec.TownID, state.Snapshot.TownID)
	return &state
}

func stateText(hash *string, epoch *int64) string {
	if hash == nil || epoch == nil {
		return "none"
	}
	return "day " + Text(*epoch) + ", " + *hash
}

// Text renders a number for a finding.
func Text(n int64) string { return strconv.FormatInt(n, 10) }
