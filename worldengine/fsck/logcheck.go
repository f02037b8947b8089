package fsck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// LogCheck checks the messages of a log in their order, each by itself and against those before it:
// the state of its town, the pause of the world, the events of its run. It does no I/O, and is not
// for concurrent use.
type LogCheck struct {
	// Runs are the runs that have not ended, by their ids.
	Runs map[string]*runState

	world  string
	counts *Counts
	towns  map[string]townState // by the subject of the town's history
	// control is the pause of the world by its last message; the zero Town if that is unknown.
	control machine.Town
}

// NewLogCheck makes the check of a world's log, which counts its messages in counts.
func NewLogCheck(world string, counts *Counts) *LogCheck {
	return &LogCheck{
		world: world, counts: counts,
		towns: map[string]townState{}, Runs: map[string]*runState{},
	}
}

// townState is a town by its last message. If that is unreadable, the town is unknown.
type townState struct {
	first uint64 // the sequence of the first message read of it
	read  uint64 // how many were read
	last  uint64 // the sequence of the last one
	// good is the sequence of the last record that an engine can load, 0 for none, and goodHash its
	// state's.
	good     uint64
	goodHash string
	named    bool // it was counted as a town
	known    bool
	town     machine.Town // if it is known
}

// next returns the town after another message on its subject that is no record of it.
func (t *townState) next(seq uint64) townState {
	return townState{
		first: cmp.Or(t.first, seq), read: t.read + 1, last: seq,
		good: t.good, goodHash: t.goodHash, named: t.named,
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

	message *jetstream.RawStreamMsg
	town    string
	stream  string
	onDisk  []uint64 // messages that the record puts aside, and that NATS cannot read
	damaged bool     // it is on a town's subject, and no engine can load it
	accepts *acceptance
	stepped bool // the record is the one that its input makes of the town before it
}

func (v *Verdict) finding(what string, want, got any) Finding {
	return Finding{
		Stream: v.stream, Sequence: v.message.Sequence, Subject: v.message.Subject, Town: v.town,
		What: what, Want: fmt.Sprint(want), Got: fmt.Sprint(got),
	}
}

// want reports a wrong value of the message.
func (v *Verdict) want(what string, want, got any) {
	if want != got {
		v.Own = append(v.Own, v.finding(what, want, got))
	}
}

// follows reports a value that does not follow from the message at before, if there is one.
func (v *Verdict) follows(what string, want, got any) {
	switch {
	case v.before == 0:
		v.want(what, want, got)
	case want != got:
		v.History = append(v.History, v.finding(what, want, got))
	}
}

// Check checks the next message of the log.
func (l *LogCheck) Check(m *jetstream.RawStreamMsg) *Verdict {
	v := &Verdict{message: m, stream: wire.LogStream(l.world)}
	l.counts.Messages++
	rec, err := commitlog.ReadRecord(m.Data)
	if err == nil {
		v.town = rec.TownID
		l.checkRecord(v, rec)
	} else {
		v.want("the record cannot be read", commitlog.RecordVersion, err.Error())
	}
	l.noteHistory(v)
	return v
}

// noteHistory records a message on the subject of a history that is no record of it.
func (l *LogCheck) noteHistory(v *Verdict) {
	subject, seq := v.message.Subject, v.message.Sequence
	if subject == wire.ControlSubject(l.world) && l.control.Seq != seq {
		l.control = machine.Town{}
	}
	if !strings.HasPrefix(subject, wire.LogSubject(l.world, "")) {
		return
	}
	now := l.towns[subject]
	if now.last != seq {
		now = now.next(seq)
		l.towns[subject] = now
	}
	v.damaged = now.good != seq
}

// checkRecord checks a record by its kind.
func (l *LogCheck) checkRecord(v *Verdict, rec *commitlog.Record) {
	l.count(v, rec)
	ofTown := rec.Kind.OfTown() && !isOfWorld(rec)
	if rec.Run == nil && !mayLackRun(rec.Kind) {
		v.want("the record has no run", "events", "")
		if !ofTown { // else its state counts all the same
			return
		}
	}
	v.want("the record is not on its own subject", l.subjectOf(v, rec), v.message.Subject)
	v.checkResult(rec)
	run := l.checkRun(v, rec)
	if !ofTown {
		v.checkHeaders(rec, nil)
	}
	switch kind := rec.Kind; {
	case ofTown:
		l.checkTown(v, rec, run)
	case kind == commitlog.KindControl:
		l.checkWorldControl(v, rec)
	case kind == commitlog.KindSignal:
		v.step(rec, machine.Town{}, nil)
	case kind == commitlog.KindRefused:
		l.checkRefused(v, rec, run)
	case kind == commitlog.KindEvents:
		v.checkAppended(rec, run)
	case kind == commitlog.KindRun:
		l.checkBetween(v, rec, run)
	}
	if rec.Run != nil && !v.stepped {
		v.checkEvents(rec.Run)
	}
}

// count counts a record by its kind.
func (l *LogCheck) count(v *Verdict, rec *commitlog.Record) {
	switch rec.Kind {
	case commitlog.KindHandoff:
		l.counts.Accepted++
	case commitlog.KindPut:
		l.counts.Puts++
	case commitlog.KindRemove:
		l.counts.Removals++
	case commitlog.KindMend:
		l.counts.Mends++
	case commitlog.KindAsked, commitlog.KindRefused:
		l.counts.Refused++
	case commitlog.KindControl:
		l.counts.Controls++
	case commitlog.KindDecided, commitlog.KindSignal:
		l.counts.Signals++
	case commitlog.KindRun:
		l.counts.RunRecords++
	case commitlog.KindEvents:
		l.counts.Appended++
	case commitlog.KindCancelled:
	case commitlog.KindPending:
		before := l.towns[v.message.Subject].town.Pending
		switch {
		case rec.Run != nil || rec.Pending == nil:
			l.counts.Pending++
		case before == nil || before.Attempt != rec.Pending.Attempt:
			l.counts.Attempts++
		}
	default:
		v.want("a record of a kind that this program does not know", "", string(rec.Kind))
	}
}

// isOfWorld reports whether a record pauses or resumes the world.
func isOfWorld(rec *commitlog.Record) bool {
	return rec.Kind == commitlog.KindControl && rec.TownID == ""
}

// mayLackRun reports whether records of a kind may be without a run.
func mayLackRun(kind commitlog.Kind) bool {
	return kind == commitlog.KindPut || kind == commitlog.KindRemove ||
		kind == commitlog.KindPending || kind == commitlog.KindMend
}

// subjectOf returns the subject of a record.
func (l *LogCheck) subjectOf(v *Verdict, rec *commitlog.Record) string {
	token := wire.TownToken(rec.TownID)
	switch kind := rec.Kind; {
	case isOfWorld(rec):
		return wire.ControlSubject(l.world)
	case kind.OfTown():
		return wire.LogSubject(l.world, token)
	case kind == commitlog.KindSignal:
		return wire.SignalSubject(l.world)
	case kind == commitlog.KindEvents, kind == commitlog.KindRun:
		return wire.RunSubject(l.world, rec.Run.RunID)
	case kind == commitlog.KindRefused:
		// A duplicate is stored without a guard, so its town may have been made meanwhile.
		unknown := wire.RefusedSubject(l.world, wire.UnknownTownToken)
		town, exists := l.towns[wire.LogSubject(l.world, token)]
		if v.message.Subject == unknown && (!exists || town.town.Removed != nil ||
			isDuplicate(rec)) {
			return unknown
		}
		return wire.RefusedSubject(l.world, token)
	}
	return v.message.Subject
}

// resultOf returns the verified result of a record, or the zero one with the reason.
func resultOf(rec *commitlog.Record) (*handoff.Result, error) {
	r, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		return new(handoff.Result), err
	}
	return r, nil
}

func isDuplicate(rec *commitlog.Record) bool {
	r, _ := resultOf(rec)
	return r.Status == handoff.Duplicate
}

// acceptance is a record that accepts a key.
type acceptance struct {
	key     string
	retryOf *apply.RetryOf
}

// checkResult checks that the result of a judged handoff verifies, and fits the kind of its record.
func (v *Verdict) checkResult(rec *commitlog.Record) {
	if of := retryOf(rec); of != nil && (of.LogSeq == 0 || of.LogSeq >= v.message.Sequence) {
		v.want("a retry names no place in the log before it", "", of.LogSeq)
	}
	accepted := rec.Kind == commitlog.KindHandoff
	if !accepted && rec.Kind != commitlog.KindRefused && rec.Kind != commitlog.KindAsked {
		return
	}
	r, err := resultOf(rec)
	if err != nil {
		v.want("the result does not verify", "", err.Error())
		return
	}
	v.want("the result does not fit the kind of its record: it is accepted", accepted,
		r.Status.Accepted())
	if accepted {
		v.accepts = &acceptance{r.IdempotencyKey, rec.RetryOf}
	}
}

// checkHeaders checks the headers from which the index and lists are made. state is the town's in
// the record, nil if it has none.
func (v *Verdict) checkHeaders(rec *commitlog.Record, state *town.State) {
	got := v.message.Header
	if len(got) == 0 {
		v.want("the message has no headers", string(rec.Kind), "")
		return
	}
	want := commitlog.Headers(rec, v.message.Subject, state)
	names := maps.Clone(got)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name != wire.AtHeader && !strings.HasPrefix(name, wire.ServerHeaderPrefix) {
			v.want("the header "+name+" is not the one of the record", want.Get(name), got.Get(name))
		}
	}
}

// guardOf returns the sequence that guarded a message of the log; ok is false without one.
func guardOf(header nats.Header) (guard uint64, ok bool) {
	guard, err := strconv.ParseUint(header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	return guard, err == nil
}

// checkGuard checks that a message was guarded by the sequence of the one before it.
func (v *Verdict) checkGuard(before uint64) {
	v.before = before
	v.follows("the message was not guarded by the one before it on its subject",
		strconv.FormatUint(before, 10), v.message.Header.Get(jetstream.ExpectedLastSubjSeqHeader))
}

// checkWorldControl checks a signal that paused or resumed the world.
func (l *LogCheck) checkWorldControl(v *Verdict, rec *commitlog.Record) {
	now, prior := machine.Town{Seq: v.message.Sequence, Paused: rec.Paused}, l.control
	l.control = now
	if prior.Seq != 0 {
		v.checkGuard(prior.Seq)
	} else {
		prior = beforeControl(now)
	}
	v.step(rec, prior, nil)
}

// beforeControl returns a town before it was paused or resumed, as far as that counts.
func beforeControl(t machine.Town) machine.Town {
	if t.Paused != nil {
		t.Paused = nil
	} else {
		t.Paused = new(commitlog.PausedBy)
	}
	return t
}

// checkTown checks a message of a town's history.
func (l *LogCheck) checkTown(v *Verdict, rec *commitlog.Record, run *runState) {
	subject, seq := v.message.Subject, v.message.Sequence
	prior := l.towns[subject]
	if !prior.named {
		l.counts.Towns++
	}
	now := prior.next(seq)
	now.named = true
	state := v.checkState(rec)
	if state != nil {
		v.checkHeaders(rec, state)
		now.known, now.town = true, rec.Town(seq, *state)
		if state.Hash == v.message.Header.Get(wire.HashHeader) {
			now.good, now.goodHash = seq, state.Hash
		}
	}
	l.towns[subject] = now
	if guard, ok := guardOf(v.message.Header); ok && guard == 0 && !prior.known {
		prior.known = rec.Kind == commitlog.KindPut // the town's first record
	}
	switch {
	case rec.Kind == commitlog.KindMend:
		v.checkMend(rec, &prior, &now)
	case state == nil:
	case prior.known:
		v.checkGuard(prior.town.Seq)
		v.step(rec, prior.town, run)
	case rec.Kind == commitlog.KindControl:
		v.step(rec, beforeControl(now.town), run)
	case rec.Pending != nil:
		app, err := rec.Pending.Read()
		v.want("the pending handoff was not accepted in the town's state", true,
			err == nil && machine.Check(app.Handoff, nil, *state).Accepted)
	}
}

// checkState checks the state of a town's record by itself, and returns it, or nil.
func (v *Verdict) checkState(rec *commitlog.Record) *town.State {
	state, err := town.ParseStored(rec.Snapshot)
	if err != nil {
		v.want("the stored state is not a snapshot.v1", "", err.Error())
		return nil
	}
	v.want("the stored state is not in its canonical form",
		string(state.Canonical), string(rec.Snapshot))
	v.want("the stored state is the state of another town", rec.TownID, state.Snapshot.TownID)
	return &state
}

// checkMend checks a record that puts its town back.
func (v *Verdict) checkMend(rec *commitlog.Record, prior, now *townState) {
	if rec.Mend == nil {
		v.want("a record that puts its town back does not name the one that it restores",
			"mend", "")
		return
	}
	for _, lost := range rec.Mend.Lost {
		if !lost.Delivered && now.first < lost.Sequence {
			v.onDisk = append(v.onDisk, lost.Sequence)
		}
	}
	if prior.good == 0 || !now.known {
		return
	}
	v.before = prior.good
	v.follows("the town was put back to another record than its last readable one",
		prior.good, rec.Mend.Restores)
	v.follows("the town was put back to another state than its last readable record has",
		prior.goodHash, now.town.Held().Hash)
}

// checkRefused checks the message of a refused run.
func (l *LogCheck) checkRefused(v *Verdict, rec *commitlog.Record, run *runState) {
	r, _ := resultOf(rec)
	prior, exists := l.towns[wire.LogSubject(l.world, wire.TownToken(rec.TownID))]
	exists = exists && prior.town.Removed == nil
	switch {
	case r.Status == handoff.Duplicate || !exists && r.ReasonCode == handoff.ReasonUnknownTown:
		v.step(rec, machine.Town{}, run)
	case prior.known:
		v.before = prior.town.Seq
		v.step(rec, prior.town, run)
	}
}

// checkAppended checks a message with events of other producers. Projectors check whether they are
// valid transitions: the log accepts all.
func (v *Verdict) checkAppended(rec *commitlog.Record, run *runState) {
	ofEngine := run.ofEngine || machine.IsEnginePlan(rec.Run.PlanID, rec.Run.PlanVersion)
	for i := range rec.Run.Events {
		e := &rec.Run.Events[i]
		ofOthers := e.StepID != "" && !slices.Contains(machine.Steps(), e.StepID)
		if e.EventType.Spec().OfEngine || ofEngine && !ofOthers {
			v.want("others appended an event that only the engine emits", "", eventText(rec.Run, i))
			run.lost = true // the engine emits no event that others have appended before it
		}
	}
	run.extend(v, rec)
}

// checkBetween checks a run's events that the engine emitted between its commits, or a record that
// closes the run to others, or reopens it.
func (l *LogCheck) checkBetween(v *Verdict, rec *commitlog.Record, run *runState) {
	switch {
	case run.lost:
	case len(rec.Run.Events) == 0:
		v.want("a record without events neither closes nor reopens its run", true,
			rec.Closing || run.tail.Closed)
	case run.accepted:
		current := l.towns[wire.LogSubject(l.world, wire.TownToken(rec.TownID))].town
		if p := current.Pending; p != nil && p.Run.RunID == rec.Run.RunID {
			v.before = current.Seq
			v.stepRun(rec, current, run.tail, eventsInHand(rec, p)...)
		}
	case run.tail.Waiting != nil && run.isEndedBy(rec):
		v.stepRun(rec, machine.Town{}, run.tail, abandonOf(rec))
	}
	run.extend(v, rec)
}
