package fsck

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// LogCheck checks the messages of a log in their order, each by itself and against those before it.
// It compares the state of the town, the pause of the world, and the events of the run. It does no
// I/O, and is not for concurrent use.
type LogCheck struct {
	// Runs are the runs that have not ended, by their ids.
	Runs map[string]*runState

	world     string
	counts    *Counts
	histories map[string]*history // by subject
}

// NewLogCheck makes the check of a world's log, which counts its messages in counts.
func NewLogCheck(world string, counts *Counts) *LogCheck {
	return &LogCheck{
		world: world, counts: counts,
		histories: map[string]*history{}, Runs: map[string]*runState{},
	}
}

// history is a town's history, or the one of the world's pauses, as far as it was read.
type history struct {
	ofTown      bool   // its subject is a town's
	counted     bool   // as a town, by a record
	read        uint64 // how many messages
	first, last uint64 // their sequences
	cut         bool   // the first one follows another one
	onDisk      uint64 // a message that NATS cannot read; a restore may have left it behind
	// town is the town after the last message, nil if that is unreadable. good is the town after the
	// last record that an engine can load, nil if there is none. Of the world only Seq and Paused
	// count.
	town, good *machine.Town
}

// Verdict has the findings about one message of the log.
type Verdict struct {
	// Own are about the message itself, History about the one that it follows. History counts only
	// while the message at before, which was compared, is still kept: NATS discards a full
	// history's oldest messages while it is read.
	Own     []Finding
	History []Finding
	before  uint64

	*jetstream.RawStreamMsg
	world   string
	body    []byte            // the JSON of rec
	rec     *commitlog.Record // nil if it cannot be read
	result  *handoff.Result   // of a judged handoff; else, or if it does not verify, the zero one
	history *history          // that the message belongs to, or an empty one
	prior   *machine.Town     // the town before the message; nil if it is not known
	stepped bool              // the record is the one that its input makes of the town before it
}

func (v *Verdict) finding(what string, want, got any) Finding {
	f := Finding{
		Stream: wire.LogStream(v.world), Sequence: v.Sequence, Subject: v.Subject,
		What: what, Want: fmt.Sprint(want), Got: fmt.Sprint(got),
	}
	if v.rec != nil {
		f.Town = v.rec.TownID
	}
	return f
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

// damaged reports whether the message is on a town's subject, and no engine can load it.
func (v *Verdict) damaged() bool {
	return v.history.ofTown && (v.history.good == nil || v.history.good.Seq != v.Sequence)
}

// Check checks the next message of the log.
func (l *LogCheck) Check(m *jetstream.RawStreamMsg) *Verdict {
	v := &Verdict{RawStreamMsg: m, world: l.world, result: new(handoff.Result), history: l.history(m)}
	v.prior, v.history.town = v.history.town, nil
	l.counts.Messages++
	var rec *commitlog.Record
	var err error
	if v.body, err = commitlog.Body(m.Data); err == nil {
		rec, err = machine.ReadRecord(v.body)
	}
	if err != nil {
		v.want("the record cannot be read", commitlog.RecordVersion, err.Error())
		return v
	}
	v.rec = rec
	l.checkRecord(v)
	return v
}

// history adds a message to its history.
func (l *LogCheck) history(m *jetstream.RawStreamMsg) *history {
	ofTown := strings.HasPrefix(m.Subject, wire.LogSubject(l.world, ""))
	if !ofTown && m.Subject != wire.ControlSubject(l.world) {
		return new(history)
	}
	h := l.histories[m.Subject]
	if h == nil {
		guard, _ := commitlog.GuardOf(m.Header)
		h = &history{ofTown: ofTown, first: m.Sequence, cut: guard > 0}
		l.histories[m.Subject] = h
	}
	h.read, h.last = h.read+1, m.Sequence
	return h
}

// townBefore returns the history of a town so far, an empty one of a town that has none.
func (l *LogCheck) townBefore(townID string) *history {
	if h := l.histories[wire.LogSubject(l.world, wire.TownToken(townID))]; h != nil {
		return h
	}
	return new(history)
}

// checkRecord checks a record by its kind.
func (l *LogCheck) checkRecord(v *Verdict) {
	rec := v.rec
	l.count(v)
	ofTown := rec.Kind.OfTown() && !isOfWorld(rec)
	if rec.Run == nil && !mayLackRun(rec.Kind) {
		v.want("the record has no run", "events", "")
		if !ofTown { // else its state counts all the same
			return
		}
	}
	v.want("the record is not on its own subject", l.subjectOf(v), v.Subject)
	v.checkResult()
	run := l.checkRun(v)
	if !ofTown {
		v.checkHeaders(nil)
		if now, err := commitlog.ReadEntry(rec.TownID, v.RawStreamMsg); v.history.ofTown && err == nil {
			v.history.good = &now // engines do not look at the kind
		}
	}
	switch kind := rec.Kind; {
	case ofTown:
		l.checkTown(v, run)
	case kind == commitlog.KindControl:
		v.checkWorldControl()
	case kind == commitlog.KindSignal:
		v.step(machine.Town{}, nil)
	case kind == commitlog.KindRefused:
		l.checkRefused(v, run)
	case kind == commitlog.KindEvents:
		v.checkAppended(run)
	case kind == commitlog.KindRun:
		l.checkBetween(v, run)
	}
	if rec.Run != nil && !v.stepped {
		v.checkEvents(rec.Run)
	}
}

// count counts a record by its kind.
func (l *LogCheck) count(v *Verdict) {
	n := l.counts
	switch v.rec.Kind {
	case commitlog.KindHandoff:
		n.Accepted++
	case commitlog.KindPut:
		n.Puts++
	case commitlog.KindRemove:
		n.Removals++
	case commitlog.KindMend:
		n.Mends++
	case commitlog.KindAsked, commitlog.KindRefused:
		n.Refused++
	case commitlog.KindControl:
		n.Controls++
	case commitlog.KindDecided, commitlog.KindSignal:
		n.Signals++
	case commitlog.KindRun:
		n.RunRecords++
	case commitlog.KindEvents:
		n.Appended++
	case commitlog.KindCancelled:
	case commitlog.KindPending:
		switch p := v.rec.Pending; {
		case v.rec.Run != nil || p == nil:
			n.Pending++
		case v.prior == nil || v.prior.Pending == nil || v.prior.Pending.Attempt != p.Attempt:
			n.Attempts++
		}
	default:
		v.want("a record of a kind that this program does not know", "", string(v.rec.Kind))
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
func (l *LogCheck) subjectOf(v *Verdict) string {
	rec, token := v.rec, wire.TownToken(v.rec.TownID)
	switch kind := rec.Kind; {
	case isOfWorld(rec):
		return wire.ControlSubject(l.world)
	case kind.OfTown():
		return wire.LogSubject(l.world, token)
	case kind == commitlog.KindSignal:
		return wire.SignalSubject(l.world)
	case kind == commitlog.KindEvents, kind == commitlog.KindRun:
		return wire.RunSubject(l.world, rec.Run.RunID)
	case kind != commitlog.KindRefused:
		return v.Subject
	}
	unknown := wire.RefusedSubject(l.world, wire.UnknownTownToken)
	// A duplicate is stored without a guard, so its town may have been made meanwhile.
	result, _ := resultOf(rec)
	if v.Subject == unknown &&
		(!l.townBefore(rec.TownID).exists() || result.Status == handoff.Duplicate) {
		return unknown
	}
	return wire.RefusedSubject(l.world, token)
}

// exists reports whether the history's town may exist after it.
func (h *history) exists() bool {
	return h.read > 0 && (h.town == nil || h.town.Removed == nil)
}

// resultOf returns the verified result of a record, or the zero one with the reason.
func resultOf(rec *commitlog.Record) (*handoff.Result, error) {
	r, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		return new(handoff.Result), err
	}
	return r, nil
}

// checkResult checks that the result of a judged handoff verifies, and fits the kind of its record.
func (v *Verdict) checkResult() {
	if of := retryOf(v.rec); of != nil && (of.LogSeq == 0 || of.LogSeq >= v.Sequence) {
		v.want("a retry names no place in the log before it", "", of.LogSeq)
	}
	accepted := v.rec.Kind == commitlog.KindHandoff
	if !accepted && v.rec.Kind != commitlog.KindRefused && v.rec.Kind != commitlog.KindAsked {
		return
	}
	var err error
	if v.result, err = resultOf(v.rec); err != nil {
		v.want("the result does not verify", "", err.Error())
		return
	}
	v.want("the result does not fit the kind of its record: it is accepted", accepted,
		v.result.Status.Accepted())
}

// checkHeaders checks the headers from which the index and lists are made. state is the town's in
// the record, nil if it has none.
func (v *Verdict) checkHeaders(state *town.State) {
	got := v.Header
	if len(got) == 0 {
		v.want("the message has no headers", string(v.rec.Kind), "")
		return
	}
	want := commitlog.Headers(v.rec, v.Subject, state)
	names := maps.Clone(got)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name != wire.AtHeader && !strings.HasPrefix(name, wire.ServerHeaderPrefix) {
			v.want("the header "+name+" is not the one of the record", want.Get(name), got.Get(name))
		}
	}
}

// checkGuard checks that a message was guarded by the sequence of the one before it.
func (v *Verdict) checkGuard() {
	v.before = v.prior.Seq
	v.follows("the message was not guarded by the one before it on its subject",
		strconv.FormatUint(v.before, 10), v.Header.Get(jetstream.ExpectedLastSubjSeqHeader))
}

// checkWorldControl checks a signal that paused or resumed the world.
func (v *Verdict) checkWorldControl() {
	now := machine.Town{Seq: v.Sequence, Paused: v.rec.Paused}
	if !v.history.ofTown {
		v.history.town = &now
	}
	if v.prior == nil || v.history.ofTown {
		v.step(beforeControl(now), nil)
		return
	}
	v.checkGuard()
	v.step(*v.prior, nil)
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
func (l *LogCheck) checkTown(v *Verdict, run *runState) {
	if !v.history.ofTown {
		v.history, v.prior = new(history), nil
	}
	if !v.history.counted {
		l.counts.Towns++
	}
	v.history.counted = true
	state, good := v.checkState(), v.history.good
	if state != nil {
		v.checkHeaders(state)
		now := v.rec.Town(v.Sequence, *state)
		v.history.town = &now
		if state.Hash == v.Header.Get(wire.HashHeader) {
			v.history.good = &now
		}
	}
	if guard, ok := commitlog.GuardOf(v.Header); ok && guard == 0 && v.prior == nil &&
		v.rec.Kind == commitlog.KindPut {
		v.prior = new(machine.Town) // the town's first record
	}
	switch {
	case v.rec.Kind == commitlog.KindMend:
		v.checkMend(good)
	case state == nil:
	case v.prior != nil:
		v.checkGuard()
		v.step(*v.prior, run)
	case v.rec.Kind == commitlog.KindControl:
		v.step(beforeControl(*v.history.town), run)
	case v.rec.Pending != nil:
		app, err := v.rec.Pending.Read()
		v.want("the pending handoff was not accepted in the town's state", true,
			err == nil && machine.Check(app.Handoff, nil, *state).Accepted)
	}
}

// checkState checks the state of a town's record by itself, and returns it, or nil.
func (v *Verdict) checkState() *town.State {
	state, err := town.ParseStored(v.rec.Snapshot)
	if err != nil {
		v.want("the stored state is not a snapshot.v1", "", err.Error())
		return nil
	}
	v.want("the stored state is not in its canonical form",
		string(state.Canonical), string(v.rec.Snapshot))
	v.want("the stored state is the state of another town", v.rec.TownID, state.Snapshot.TownID)
	return &state
}

// checkMend checks a record that puts its town back. good is the town's last readable record.
func (v *Verdict) checkMend(good *machine.Town) {
	if v.rec.Mend == nil {
		v.want("a record that puts its town back does not name the one that it restores",
			"mend", "")
		return
	}
	for _, lost := range v.rec.Mend.Lost {
		if !lost.Delivered && v.history.first < lost.Sequence {
			v.history.onDisk = lost.Sequence
		}
	}
	if good == nil || v.history.town == nil {
		return
	}
	v.before = good.Seq
	v.follows("the town was put back to another record than its last readable one",
		good.Seq, v.rec.Mend.Restores)
	v.follows("the town was put back to another state than its last readable record has",
		good.Held().Hash, v.history.town.Held().Hash)
}

// checkRefused checks the message of a refused run.
func (l *LogCheck) checkRefused(v *Verdict, run *runState) {
	before := l.townBefore(v.rec.TownID)
	switch {
	case v.result.Status == handoff.Duplicate ||
		!before.exists() && v.result.ReasonCode == handoff.ReasonUnknownTown:
		v.step(machine.Town{}, run)
	case before.town != nil:
		v.before = before.town.Seq
		v.step(*before.town, run)
	}
}

// checkAppended checks a message with events of other producers. Projectors check whether they are
// valid transitions: the log accepts all.
func (v *Verdict) checkAppended(run *runState) {
	events := v.rec.Run
	ofEngine := run.ofEngine || machine.IsEnginePlan(events.PlanID, events.PlanVersion)
	for i := range events.Events {
		e := &events.Events[i]
		ofOthers := e.StepID != "" && !slices.Contains(machine.Steps(), e.StepID)
		if e.EventType.Spec().OfEngine || ofEngine && !ofOthers {
			v.want("others appended an event that only the engine emits", "", eventText(events, i))
			run.lost = true // the engine emits no event that others have appended before it
		}
	}
	run.extend(v)
}

// checkBetween checks a run's events that the engine emitted between its commits, or a record that
// closes the run to others, or reopens it.
func (l *LogCheck) checkBetween(v *Verdict, run *runState) {
	switch {
	case run.lost:
	case len(v.rec.Run.Events) == 0:
		v.want("a record without events neither closes nor reopens its run", true,
			v.rec.Closing || run.tail.Closed)
	case run.accepted:
		current := l.townBefore(v.rec.TownID).town
		if current != nil && current.Pending != nil &&
			current.Pending.Run.RunID == v.rec.Run.RunID {
			v.before = current.Seq
			v.stepRun(*current, run.tail, eventsInHand(v.rec, current.Pending)...)
		}
	case run.tail.Waiting != nil && run.isEndedBy(v.rec):
		v.stepRun(machine.Town{}, run.tail, abandonOf(v.rec))
	}
	run.extend(v)
}
