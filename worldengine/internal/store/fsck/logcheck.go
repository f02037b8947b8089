package fsck

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// LogChecker checks the messages of a log in their order, each by itself and against those before it.
// It compares the state of the town, the pause of the world, the events of the run, and the keys.
// It is not for concurrent use.
type LogChecker struct {
	Counts Counts
	// Runs are the runs that have not ended, by their ids.
	Runs map[string]*runState

	world string
	// messageAt returns a message, or nil if the log no longer has it.
	messageAt func(seq uint64) (*jetstream.RawStreamMsg, error)
	kinds     map[machine.Kind]*int64 // the count of each kind in the report
	histories map[string]*history     // by subject
	// keys has the log sequence of each key's last acceptance. The map's key is the first half of
	// the SHA-256 of the town's subject and the accepted key.
	keys map[[16]byte]uint64
}

// NewLogChecker makes the check of a world's log. at reads a message of the log again; it returns nil
// if the log no longer has the message.
func NewLogChecker(world string, at func(seq uint64) (*jetstream.RawStreamMsg, error)) *LogChecker {
	l := &LogChecker{
		world: world, messageAt: at, Runs: map[string]*runState{}, histories: map[string]*history{},
		keys: map[[16]byte]uint64{},
	}
	n := &l.Counts
	l.kinds = map[machine.Kind]*int64{
		machine.KindConcluded: &n.Accepted, machine.KindPending: &n.Pending,
		machine.KindPut: &n.Puts, machine.KindRemove: &n.Removals, machine.KindRepair: &n.Repairs,
		machine.KindAsked: &n.Refused, machine.KindRefused: &n.Refused,
		machine.KindPause: &n.Controls, machine.KindDecided: &n.Signals,
		machine.KindSignal: &n.Signals, machine.KindRunEvents: &n.RunRecords,
		machine.KindAppended: &n.Appended, machine.KindSettings: &n.Settings,
	}
	return l
}

// history is a town's history, or the one of the world's pauses, as far as it was read.
type history struct {
	isTown        bool         // its subject is a town's
	read          uint64       // how many messages were read
	first, last   uint64       // their sequences
	truncated     bool         // the first message's guard names an earlier one
	unreadableSeq uint64       // a message that NATS cannot read; a restore may have left it behind
	holes         []hole       // that no repair has given up; the newest is the last
	gaps          records.Gaps // that repairs have given up
	// lastGood is the town after the last record that an engine can load, nil if there is none. For the
	// world only Seq and Paused are set.
	lastGood *machine.Town
}

// hole is a record of a town that does not follow the record before it in the log.
type hole struct {
	before, at uint64 // the sequences of both records; 0 if there is none before
	guard      uint64 // the sequence that the later record names instead
	read       uint64 // how many messages of the town were read before it
}

// town returns the town after the last message; nil if an engine cannot load it.
func (h *history) town() *machine.Town {
	if h.lastGood == nil || h.lastGood.Seq != h.last {
		return nil
	}
	return h.lastGood
}

// exists reports whether the town may exist after its history.
func (h *history) exists() bool {
	now := h.town()
	return h.read > 0 && (now == nil || now.Removed == nil)
}

// message is a message of the log, with the findings about it.
type message struct {
	*jetstream.RawStreamMsg
	findings []Finding
	// tentative are findings from a comparison with the message at comparedSeq. They count only if
	// the log still keeps that message: NATS discards a full history's oldest messages while fsck
	// reads.
	tentative   []Finding
	comparedSeq uint64

	body    []byte          // the JSON of rec
	rec     *machine.Record // nil if it cannot be read
	state   *town.State     // of a town's record
	result  *handoff.Result // of a judged handoff; zero without one, or if it does not verify
	history *history        // the message's history, or an empty one
	// prior is the town before the message; nil if it is not known. If a record puts a town back,
	// prior is the town after the last record that an engine can load.
	prior      *machine.Town
	reproduced bool // machine.Step has made the same record again
}

func (v *message) finding(what string, want, got any) Finding {
	f := Finding{Sequence: v.Sequence, Subject: v.Subject, What: what, Want: fmt.Sprint(want),
		Got: fmt.Sprint(got)}
	if v.rec != nil {
		f.Town = v.rec.TownID
	}
	return f
}

// expectEqual reports a wrong value of the message.
func (v *message) expectEqual(what string, want, got any) {
	if want != got {
		v.findings = append(v.findings, v.finding(what, want, got))
	}
}

// expectFollows reports a value that does not follow from the message at sequence before.
func (v *message) expectFollows(what string, want, got any) {
	if want != got {
		v.tentative = append(v.tentative, v.finding(what, want, got))
	}
}

// damaged reports whether the message is on a town's subject and no engine can load it. The message
// must be the last one that was checked.
func (v *message) damaged() bool { return v.history.isTown && v.history.town() == nil }

// Check checks the next message of the log, and returns the findings about it. The error is the
// error of a message that could not be read again.
func (l *LogChecker) Check(m *jetstream.RawStreamMsg) ([]Finding, error) {
	v, err := l.check(m)
	return v.findings, err
}

func (l *LogChecker) check(m *jetstream.RawStreamMsg) (*message, error) {
	v := &message{RawStreamMsg: m, result: new(handoff.Result)}
	l.Counts.Messages++
	l.extend(v)
	var err error
	if v.body, err = records.Body(m.Data); err == nil {
		v.rec, err = machine.ReadRecord(v.body)
	}
	if err != nil {
		v.rec = nil
		v.expectEqual("the record cannot be read", machine.RecordVersion, err.Error())
		return v, nil
	}
	err = l.readTown(v)
	l.count(v)
	v.readResult()
	switch {
	case !v.rec.Kind.Known():
		v.expectEqual("a record of a kind that this program does not know", "", string(v.rec.Kind))
	case v.rec.Run == nil && v.rec.Kind.Spec().Run == machine.Always:
		v.expectEqual("the record has no run", "events", "")
	case l.subjectOf(v) != v.Subject:
		v.expectEqual("the record is not on its own subject", l.subjectOf(v), v.Subject)
	case err != nil:
		v.expectEqual("the stored state is not a snapshot.v1", "", err.Error())
	default:
		v.checkHeaders()
		l.checkRecord(v)
	}
	if err := l.checkKey(v); err != nil {
		return v, err
	}
	return v, l.resolveTentative(v)
}

// resolveTentative adds the tentative findings to the others if before is 0, or if the log still keeps the
// message at that sequence.
func (l *LogChecker) resolveTentative(v *message) error {
	if len(v.tentative) == 0 {
		return nil
	}
	if v.comparedSeq > 0 {
		compared, err := l.messageAt(v.comparedSeq)
		if err != nil || compared == nil {
			return err
		}
		if guard, _ := commitlog.GuardOf(v.Header); guard > v.comparedSeq && compared.Subject == v.Subject {
			v.history.unreadableSeq = guard
		}
	}
	v.findings = append(v.findings, v.tentative...)
	return nil
}

func (l *LogChecker) extend(v *message) {
	h := l.histories[v.Subject]
	isTown := strings.HasPrefix(v.Subject, layout.LogSubject(l.world, ""))
	if h == nil {
		guard, _ := commitlog.GuardOf(v.Header)
		h = &history{isTown: isTown, first: v.Sequence, truncated: guard > 0}
	}
	if isTown || commitlog.IsHistory(l.world, v.Subject) {
		l.histories[v.Subject] = h
	}
	v.history, v.prior = h, h.town()
	h.link(v.RawStreamMsg)
	h.read, h.last = h.read+1, v.Sequence
}

// link notes whether a message follows the one before it on a town's subject. The index has the same
// rule, by which it refuses handoffs.
func (h *history) link(m *jetstream.RawStreamMsg) {
	if !h.isTown {
		return
	}
	if guard, _ := commitlog.GuardOf(m.Header); guard != h.last {
		h.holes = append(h.holes, hole{h.last, m.Sequence, guard, h.read})
	}
	if records.KindOf(m.Header) != machine.KindRepair {
		return
	}
	if text := m.Header.Get(layout.GapsHeader); text != "" {
		h.gaps = append(h.gaps, records.ReadGaps(text, m.Sequence)...)
	} else if n := len(h.holes); n > 0 { // of an earlier program: it gave up the newest hole
		h.gaps = append(h.gaps, machine.Gap{After: h.holes[n-1].before, Before: m.Sequence})
	}
	h.holes = slices.DeleteFunc(h.holes, func(at hole) bool { return h.gaps.Cover(at.before, at.at) })
}

// readTown reads the town after the message like an engine, which ignores the kind.
func (l *LogChecker) readTown(v *message) error {
	h := v.history
	if v.rec.Kind == machine.KindRepair {
		v.prior = h.lastGood
	}
	if !h.isTown {
		h.lastGood = &machine.Town{Seq: v.Sequence, Paused: v.rec.Paused}
		return nil
	}
	state, err := town.ParseStored(v.rec.Snapshot)
	if err == nil && state.Hash == v.Header.Get(layout.HashHeader) {
		if h.lastGood == nil {
			l.Counts.Towns++
		}
		now := v.rec.Town(v.Sequence, state)
		h.lastGood = &now
	}
	v.state = &state
	return err
}

// townHistory returns the history of a town so far; an empty one if the town has none.
func (l *LogChecker) townHistory(townID string) *history {
	if h := l.histories[layout.LogSubject(l.world, wire.TownToken(townID))]; h != nil {
		return h
	}
	return new(history)
}

func (l *LogChecker) count(v *message) {
	count, p := l.kinds[v.rec.Kind], v.rec.Pending
	if v.rec.Kind == machine.KindPending && v.rec.Run == nil && p != nil {
		count = &l.Counts.Attempts
		if v.prior != nil && v.prior.Pending != nil && v.prior.Pending.Attempt == p.Attempt {
			return
		}
	}
	if count != nil {
		*count++
	}
}

// subjectOf returns the subject on which a record of a known kind belongs.
func (l *LogChecker) subjectOf(v *message) string {
	rec, token := v.rec, wire.TownToken(v.rec.TownID)
	switch rec.Subject() {
	case machine.SignalSubject:
		return layout.SignalSubject(l.world)
	case machine.SettingsSubject:
		return layout.SettingsSubject(l.world)
	case machine.RunSubject:
		return layout.RunSubject(l.world, layout.RunToken(rec.Run.RunID))
	case machine.PauseSubject:
		return layout.PauseSubject(l.world)
	case machine.RefusedSubject:
		unknown := layout.RefusedSubject(l.world, layout.UnknownTownToken)
		// A duplicate is stored without a guard, so its town may have been made meanwhile.
		if v.Subject == unknown &&
			(!l.townHistory(rec.TownID).exists() || v.result.Status == handoff.Duplicate) {
			return unknown
		}
		return layout.RefusedSubject(l.world, token)
	}
	return layout.LogSubject(l.world, token)
}

// readResult reads the result of a judged handoff, and checks that it verifies.
func (v *message) readResult() {
	if !v.rec.Kind.Spec().HasResult {
		return
	}
	result, err := handoff.ParseResult(v.rec.Result, schemas.Limits{Bytes: len(v.rec.Result) + 1})
	if err != nil {
		v.expectEqual("the result does not verify", "", err.Error())
		return
	}
	v.result = result
}

// checkHeaders checks the headers from which the index and lists are made.
func (v *message) checkHeaders() {
	want, got := records.Headers(v.rec, v.Subject, v.state), v.Header
	names := maps.Clone(want)
	maps.Copy(names, got)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name != layout.AtHeader && name != layout.AppendIDHeader &&
			!strings.HasPrefix(name, layout.ServerHeaderPrefix) {
			v.expectEqual("the header "+name+" is not the one of the record", want.Get(name), got.Get(name))
		}
	}
}

// checkRecord checks a record against the ones before it.
func (l *LogChecker) checkRecord(v *message) {
	run := l.checkRun(v)
	switch v.rec.Kind {
	case machine.KindRepair:
		v.checkRepair()
	case machine.KindSignal:
		v.repeatStep(machine.Town{}, nil)
	case machine.KindSettings:
		v.checkSettings()
	case machine.KindRefused:
		l.checkRefused(v, run)
	case machine.KindAppended:
		v.checkAppended(run)
	case machine.KindRunEvents:
		l.checkEngineEvents(v, run)
	default:
		if v.checkGuard(); v.prior != nil {
			v.repeatStep(*v.prior, run)
		}
	}
	if v.rec.Run != nil && !v.reproduced {
		v.checkEvents(v.rec.Run)
	}
}

// checkGuard checks that a message of a history was guarded by the one before it there, if that one
// is known.
func (v *message) checkGuard() {
	if guard, ok := commitlog.GuardOf(v.Header); ok && guard == 0 && v.prior == nil {
		v.prior = new(machine.Town) // v is the history's first message
	}
	if v.prior == nil {
		return
	}
	v.comparedSeq = v.prior.Seq
	v.expectFollows("the message was not guarded by the one before it on its subject",
		strconv.FormatUint(v.comparedSeq, 10), v.Header.Get(jetstream.ExpectedLastSubjSeqHeader))
}

// checkSettings checks a record of the settings of the world.
func (v *message) checkSettings() {
	v.checkGuard()
	v.expectEqual("the record has not all settings of a world",
		fmt.Sprint(worldsettings.ReadRecord(v.rec).Entries()), fmt.Sprint(v.rec.Settings))
}

// checkRepair checks a record that puts its town back to the last readable record.
func (v *message) checkRepair() {
	repair := cmp.Or(v.rec.Repair, new(machine.Repair))
	for _, l := range repair.Lost {
		if !l.Delivered && v.history.first < l.Sequence {
			v.history.unreadableSeq = l.Sequence
		}
	}
	if v.prior == nil {
		return
	}
	v.comparedSeq = v.prior.Seq
	made := repairRecord(v.rec.TownID, v.prior, *repair)
	made.SetState(v.prior)
	body, err := made.MarshalJSON()
	v.compare(body, err)
}

func (l *LogChecker) checkRefused(v *message, run *runState) {
	h := l.townHistory(v.rec.TownID)
	switch now := h.town(); {
	case v.result.Status == handoff.Duplicate ||
		!h.exists() && v.result.ReasonCode == handoff.ReasonUnknownTown:
		v.repeatStep(machine.Town{}, run)
	case now != nil:
		v.comparedSeq = now.Seq
		v.repeatStep(*now, run)
	}
}

// checkAppended checks a message with events of other producers. The log accepts all transitions;
// projectors check whether they are valid.
func (v *message) checkAppended(run *runState) {
	events := v.rec.Run
	engineOwned := run.engineOwned || machine.IsEnginePlan(events.PlanID, events.PlanVersion)
	for i := range events.Events {
		e := &events.Events[i]
		foreignStep := e.StepID != "" && !slices.Contains(machine.Steps(), e.StepID)
		if e.EventType.Spec().EngineOnly || engineOwned && !foreignStep {
			v.expectEqual("others appended an event that only the engine emits", "", eventText(events, i))
			run.incomplete = true // the engine does not emit an event that the run already has
		}
	}
	run.extend(v)
}

// checkEngineEvents checks a run's events that the engine emitted between its commits, or a record that
// closes the run to other producers, or reopens it.
func (l *LogChecker) checkEngineEvents(v *message, run *runState) {
	switch now := l.townHistory(run.town).town(); {
	case run.incomplete:
	case len(v.rec.Run.Events) == 0:
		v.expectEqual("a record without events neither closes nor reopens its run", true,
			v.rec.Closing || run.tail.Closed)
	case run.accepted:
		if now != nil && now.Pending != nil && now.Pending.Run.RunID == v.rec.Run.RunID {
			v.comparedSeq = now.Seq
			v.repeatRunStep(run.town, *now, run.tail, commandEvents(v.rec, now.Pending)...)
		}
	case run.tail.FirstRecord != nil && isEndedBy(run, v.rec):
		waiting := run.tail.FirstRecord
		v.repeatRunStep(waiting.TownID, machine.Town{}, run.tail,
			&machine.CancelWaiting{Run: waiting.Run.Identity, Why: cancellationOf(v.rec.Run)})
	case run.tail.FirstRecord != nil: // the run may end before its handoff is judged
		waiting := run.tail.FirstRecord
		v.expectEqual("the run is not the one of its records before",
			fmt.Sprint(waiting.TownID, " ", waiting.Run.Identity),
			fmt.Sprint(v.rec.TownID, " ", v.rec.Run.Identity))
	}
	run.extend(v)
}

// checkKey reports a key that its town accepted before, unless the log no longer keeps the earlier
// record, or the record is of a retry. A record that no engine can load accepts no key.
func (l *LogChecker) checkKey(v *message) error {
	if !v.rec.Kind.Spec().ConsumesKey || v.result.IdempotencyKey == "" || v.damaged() {
		return nil
	}
	sum := sha256.Sum256([]byte(v.Subject + " " + v.result.IdempotencyKey))
	key := [16]byte(sum[:])
	earlierSeq := l.keys[key]
	l.keys[key] = v.Sequence
	if earlierSeq == 0 {
		return nil
	}
	earlier, err := l.messageAt(earlierSeq)
	if earlier != nil && err == nil && !retries(v.rec.RetryOf, earlier) {
		v.expectEqual("the key was accepted twice", fmt.Sprint("a duplicate of log sequence ", earlierSeq),
			"accepted again: "+v.result.IdempotencyKey)
	}
	return err
}

// retries reports whether retried names the run of an earlier record, and that run may be retried.
func retries(retried *apply.RetryOf, earlier *jetstream.RawStreamMsg) bool {
	_, reason, _ := strings.Cut(earlier.Header.Get(layout.ResultHeader), " ")
	return retried != nil && retried.LogSeq == earlier.Sequence &&
		retried.RunID == layout.RunIDOf(earlier.Header) && apply.MayBeRetried(reason)
}
