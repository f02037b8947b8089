package fsck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
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
	histories map[string]*history // by subject
	// keys has the log sequence of each key's last acceptance. The map's key is the first half of
	// the SHA-256 of the town's subject and the accepted key.
	keys map[[16]byte]uint64
}

// NewLogChecker makes the check of a world's log. at reads a message of the log again; it returns nil
// if the log no longer has the message.
func NewLogChecker(world string, at func(seq uint64) (*jetstream.RawStreamMsg, error)) *LogChecker {
	return &LogChecker{
		world: world, messageAt: at, Runs: map[string]*runState{}, histories: map[string]*history{},
		keys: map[[16]byte]uint64{},
	}
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

// expectFollows reports a value that does not follow from the message at comparedSeq.
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

// resolveTentative adds the tentative findings to the others if comparedSeq is 0, or if the log still keeps the
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

func (l *LogChecker) count(v *message) {
	count, p := l.Counts.counter(v.rec.Kind), v.rec.Pending
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
