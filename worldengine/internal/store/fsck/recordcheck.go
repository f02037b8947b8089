package fsck

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
)

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
