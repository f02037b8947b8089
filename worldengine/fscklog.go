package worldengine

import (
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// fsckLog checks the messages of the log, each by itself and against what came before it: the state
// of its town, the events of its run. It does no I/O.
type fsckLog struct {
	world  string
	counts *FsckCounts
	towns  map[string]fsckTown // by the subject of the town's history
	runs   map[string]fsckRun  // that others than the engine append to, until they end
}

// fsckTown is what the last message read of a town said. One that could not be read is not known.
type fsckTown struct {
	known bool
	seq   uint64
	epoch int64
	hash  string
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
	switch rec.Kind {
	case kindHandoff, kindPut:
		l.ofTown(v, rec)
	case kindRefused:
		l.counts.Refused++
		l.refused(v, rec)
	case kindEvents:
		l.counts.Appended++
		l.appended(v, rec)
	default:
		v.want("a record of a kind that this program does not know", "", string(rec.Kind))
		l.forget(m)
	}
	return v
}

// forget makes the town of an unreadable message one whose state is not known.
func (l *fsckLog) forget(m *fsckMessage) {
	if _, ok := l.towns[m.Subject()]; ok {
		l.towns[m.Subject()] = fsckTown{}
	}
}

// ofTown checks a message of a town's history.
func (l *fsckLog) ofTown(v *fsckVerdict, rec *record) {
	m, header := v.message, v.message.Headers()
	prior, seen := l.towns[m.Subject()]
	if !seen {
		l.counts.Towns++
	}
	v.want("the record stands on the subject of another town",
		logSubject(l.world, TownToken(rec.TownID)), m.Subject())
	if encoded := percentEncode(rec.TownID); len(encoded) <= maxTownHeader {
		v.want("the header does not name the town", encoded, header.Get(townHeader))
	}
	state, err := town.Parse(rec.Snapshot, schemas.Limits{Bytes: len(rec.Snapshot) + 1})
	if err != nil {
		v.want("the stored state is not a snapshot.v1", "", err.Error())
		l.towns[m.Subject()] = fsckTown{}
		return
	}
	l.towns[m.Subject()] = fsckTown{known: true, seq: m.seq, epoch: state.Epoch(), hash: state.Hash}
	v.want("the stored state is not in its canonical form", string(state.Canonical), string(rec.Snapshot))
	v.want("the header is not the hash of the stored state", state.Hash, header.Get(hashHeader))
	v.want("the header is not the day of the stored state", text(state.Epoch()), header.Get(epochHeader))
	v.want("the stored state is that of another town", rec.TownID, state.Snapshot.TownID)
	if prior.known {
		v.before = prior.seq
		v.follows("the commit was not guarded by the town's message before it",
			strconv.FormatUint(prior.seq, 10), header.Get(jetstream.ExpectedLastSubjSeqHeader))
		if state.Epoch() < prior.epoch {
			v.follows("the town's day was lowered", text(prior.epoch)+" or later", text(state.Epoch()))
		}
	}
	if rec.Kind == kindPut {
		l.counts.Puts++
		return
	}
	l.counts.Accepted++
	if result := parseFsckResult(v, rec); result != nil {
		accepted(v, result, &state, prior)
		checkEngineRun(v, rec, result)
	}
}

// parseFsckResult returns the verified result of a record, or nil.
func parseFsckResult(v *fsckVerdict, rec *record) *handoff.Result {
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		v.want("the result does not verify", "", err.Error())
		return nil
	}
	return result
}

// accepted checks what the result of an accepted handoff says about its town.
func accepted(v *fsckVerdict, r *handoff.Result, state *town.State, prior fsckTown) {
	e := &r.Evaluation
	after := handoff.WorldState{}
	if r.WorldState != nil {
		after = *r.WorldState
	}
	v.want("an accepted handoff has the status of a refused one", "true", strconv.FormatBool(r.Status.Accepted()))
	v.want("an accepted handoff has not passed every check", "true", strconv.FormatBool(
		e.DuplicateCheck.Evaluated && !e.DuplicateCheck.Duplicate && e.StaleCheck.Evaluated &&
			e.StaleCheck.Passed && e.Preconditions.Evaluated && e.Preconditions.Passed))
	v.want("the result does not say the state after it",
		stateText(&state.Hash, new(state.Epoch())), stateText(after.SnapshotHash, after.DecisionEpoch))
	judged := stateText(&r.SnapshotHash, &r.DecisionEpoch)
	v.want("the stale check does not say the state that the handoff was made from",
		judged, stateText(e.StaleCheck.ActualSnapshotHash, e.StaleCheck.ActualDecisionEpoch))
	if r.Status == handoff.Failed {
		v.want("a failed handoff changed its town", judged, stateText(&state.Hash, new(state.Epoch())))
	} else {
		v.want("an executed handoff did not move its town on by one day",
			text(r.DecisionEpoch+1), text(state.Epoch()))
	}
	if prior.known {
		v.follows("the handoff was not judged on the town's state before it",
			stateText(&prior.hash, &prior.epoch), judged)
	}
}

// refused checks the message of a refused run.
func (l *fsckLog) refused(v *fsckVerdict, rec *record) {
	result := parseFsckResult(v, rec)
	if result == nil {
		return
	}
	checkEngineRun(v, rec, result)
	v.want("a refused handoff has the status of an accepted one", "false", strconv.FormatBool(result.Status.Accepted()))
	subject := refusedSubject(l.world, TownToken(rec.TownID))
	prior, exists := l.towns[logSubject(l.world, TownToken(rec.TownID))]
	// A duplicate is stored without a guard, so its town may have been made meanwhile.
	if unknown := refusedSubject(l.world, unknownTownToken); v.message.Subject() == unknown &&
		(!exists || result.Status == handoff.Duplicate) {
		subject = unknown
	}
	if result.ReasonCode == handoff.ReasonUnknownTown {
		v.want("a town that exists is called unknown", "false", strconv.FormatBool(exists))
	}
	v.want("the refused run stands on the subject of another town", subject, v.message.Subject())
	stale := &result.Evaluation.StaleCheck
	if stale.Evaluated && prior.known {
		v.before = prior.seq
		v.follows("the handoff was not judged on the town's state before it",
			stateText(&prior.hash, &prior.epoch), stateText(stale.ActualSnapshotHash, stale.ActualDecisionEpoch))
	}
}

func stateText(hash *string, epoch *int64) string {
	if hash == nil || epoch == nil {
		return "none"
	}
	return "day " + text(*epoch) + ", " + *hash
}

func text(n int64) string { return strconv.FormatInt(n, 10) }
