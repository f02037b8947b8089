package systemtest_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// forge stores a message in the log like an engine, guarded by its subject's last one, but with any
// contents. It returns its sequence.
func (w *checkedWorld) forge(subject string, header nats.Header, body string) uint64 {
	w.t.Helper()
	guard := uint64(0)
	if last, err := w.log().GetLastMsgForSubject(w.t.Context(), subject); err == nil {
		guard = last.Sequence
	}
	msg := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: []byte(body)}
	for name, values := range header {
		if !strings.HasPrefix(name, "Nats-") {
			msg.Header[name] = slices.Clone(values)
		}
	}
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(guard, 10))
	ack, err := w.js.PublishMsg(w.t.Context(), msg)
	require.NoError(w.t, err)
	return ack.Sequence
}

// find returns the last message of the log whose body has all of the texts.
func (w *checkedWorld) find(texts ...string) *jetstream.RawStreamMsg {
	w.t.Helper()
	info, err := w.log().Info(w.t.Context())
	require.NoError(w.t, err)
	for seq := info.State.LastSeq; seq > 0; seq-- {
		msg, err := w.log().GetMsg(w.t.Context(), seq)
		require.NoError(w.t, err)
		missing := func(text string) bool { return !strings.Contains(string(msg.Data), text) }
		if !slices.ContainsFunc(texts, missing) {
			return msg
		}
	}
	require.Fail(w.t, "no such message")
	return nil
}

// member returns a member of a record, with its name.
func member(t *testing.T, body []byte, name, next string) string {
	t.Helper()
	from := strings.Index(string(body), `"`+name+`":`)
	to := strings.Index(string(body), `,"`+next+`":`)
	require.True(t, 0 < from && from < to, "%s", body)
	return string(body[from:to])
}

// notStepped is the finding about a record that does not follow from the town before it.
const notStepped = "the record is not the one that its input makes of the town"

// Damage that nothing else can correct is reported with its place and stays: a message that is
// forged, or that a defect wrote, each wrong in one respect.
func TestFsckFindsDamageInTheLog(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	executed := w.find(`"townId":"town-1"`, `"status":"executed"`)
	failed := w.find(`"townId":"town-1"`, `"status":"failed"`)
	stale := w.find(`"townId":"town-1"`, `"status":"stale"`)
	unknown := w.find(`"townId":"nowhere"`)
	appended := w.find(`"kind":"events"`)
	first := w.find(`"townId":"town-1"`, `"kind":"put"`, `"day":16`)
	other := w.find(`"townId":" "`, `"status":"executed"`)
	type message = jetstream.RawStreamMsg
	body := func(old, new string) func(*message) {
		return func(m *message) {
			changed := strings.Replace(string(m.Data), old, new, 1)
			require.NotEqual(t, string(m.Data), changed, old)
			m.Data = []byte(changed)
		}
	}
	header := func(name, value string) func(*message) {
		return func(m *message) { m.Header[name] = []string{value} }
	}
	swapped := func(name, next string, from *message) func(*message) {
		return func(m *message) {
			body(member(t, m.Data, name, next), member(t, from.Data, name, next))(m)
		}
	}
	list := []struct {
		base *message
		what string
		do   func(*message)
	}{
		{executed, "the record cannot be read", func(m *message) { m.Data = []byte("{") }},
		{executed, "the record cannot be read", body("commit-record.v1", "commit-record.v9")},
		{executed, "the header Kind is not the one of the record", header("Kind", "put")},
		{executed, "a record of a kind that this program does not know",
			body(`"kind":"handoff"`, `"kind":"wish"`)},
		{executed, "the header Snapshot-Hash is not the one of the record",
			header("Snapshot-Hash", strings.Repeat("0", 64))},
		{executed, "the header Snapshot-Hash is not the one of the record",
			body(`"hope":0.`, `"hope":0.0`)},
		{executed, "the header Decision-Epoch is not the one of the record", header("Decision-Epoch", "99")},
		{executed, "the stored state is not in its canonical form",
			body(`"snapshot":{`, `"snapshot":{ `)},
		{executed, "the stored state is not a snapshot.v1",
			body(`"snapshot":{"day":`, `"snapshot":{"night":`)},
		{executed, "the stored state is the state of another town",
			swapped("snapshot", "result", other)},
		{executed, "the record is not on its own subject",
			body(`"townId":"town-1"`, `"townId":"town-2"`)},
		{executed, "the header Town-Id is not the one of the record", header("Town-Id", "town-2")},
		{executed, "the message was not guarded by the one before it on its subject",
			header("Unguarded", "")},
		{executed, "the result does not verify",
			body(`"reasonCode":"EXECUTED"`, `"reasonCode":"DONE"`)},
		{executed, notStepped,
			swapped("snapshot", "result", failed)},
		{executed, notStepped,
			swapped("snapshot", "result", failed)},
		{executed, "the result does not fit the kind of its record: it is accepted",
			swapped("result", "run", stale)},
		{executed, notStepped,
			swapped("result", "run", stale)},
		{executed, notStepped, func(*message) {}},
		{failed, notStepped, swapped("snapshot", "result", executed)},
		{first, notStepped, body(`"day":16`, `"day":1`)},
		{executed, "the record has no run", body(`"run":{`, `"ran":{`)},
		{executed, "the header Run-Id is not the one of the record", header("Run-Id", "another")},
		{executed, "the id of the run is not a UUID v4",
			body(`"run":{"runId":"`, `"run":{"runId":"x`)},
		{executed, "the events do not come after the ones before them", body(`"firstSeq":1`, `"firstSeq":0`)},
		{executed, "an event is not valid", body(`"eventId":"`, `"eventId":"x`)},
		{executed, "an event is not valid",
			body(`Z","payload"`, `","payload"`)},
		{executed, "an event, or its id, was there before",
			body(`"StepCompleted","stepId":"stale-check"`, `"StepStarted","stepId":"stale-check"`)},
		{executed, "an event is not valid",
			body(`"stepId":"stale-check"`, `"stepId":"a|b"`)},
		{executed, "an event is not a valid transition", body(`"RunStarted"`, `"RunResumed"`)},
		{executed, "an event is not a valid transition",
			body(`"StepStarted","stepId":"stale-check"`, `"StepFailed","stepId":"stale-check"`)},
		{stale, "the result does not fit the kind of its record: it is accepted",
			swapped("result", "run", executed)},
		{stale, "the record is not on its own subject",
			body(`"townId":"town-1"`, `"townId":"town-2"`)},
		{unknown, notStepped,
			body(`"townId":"nowhere"`, `"townId":"town-1"`)},
		{appended, "the events do not come after the ones before them", func(*message) {}},
		{appended, "the record is not on its own subject",
			body(`"runId":"`, `"runId":"x`)},
		{appended, "the append was not guarded by the run's message before it",
			header("Unguarded", "")},
	}
	seqs := make([]uint64, len(list))
	for i, forged := range list {
		msg := copied(forged.base)
		forged.do(msg)
		seqs[i] = w.forgeOne(msg)
	}
	what := map[uint64][]string{}
	for _, found := range w.fsck(fsck.Options{MaxFindings: 10_000}).Findings {
		if found.Stream == wire.LogStream("main") {
			what[found.Sequence] = append(what[found.Sequence], found.What)
		}
	}
	for i, forged := range list {
		found := what[seqs[i]]
		if forged.what == notStepped && !slices.Contains(found, notStepped) {
			forged.what = "the town could not take the input of the record"
		}
		require.True(t, slices.ContainsFunc(found, func(what string) bool {
			return strings.HasPrefix(what, forged.what)
		}), "%s: %v", forged.what, found)
	}
}

// forgeOne stores a message with one wrong member.
func (w *checkedWorld) forgeOne(msg *jetstream.RawStreamMsg) uint64 {
	w.t.Helper()
	if _, unguarded := msg.Header["Unguarded"]; unguarded {
		delete(msg.Header, "Unguarded")
		delete(msg.Header, jetstream.MsgIDHeader)
		return w.publish(msg.Subject, msg.Header, msg.Data)
	}
	return w.forge(msg.Subject, msg.Header, string(msg.Data))
}

// Damage in the log is reported and cannot be repaired.
func TestFsckCannotRepairTheLog(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	executed := w.find(`"townId":"town-1"`, `"status":"executed"`)
	executed.Header["Snapshot-Hash"] = []string{strings.Repeat("0", 64)}
	seq := w.forge(executed.Subject, executed.Header, string(executed.Data))
	report := w.fsck(fsck.Options{Repair: true})
	require.False(t, report.Clean())
	require.Nil(t, report.Repair, "there was nothing to repair")
	i := slices.IndexFunc(report.Findings, func(f fsck.Finding) bool {
		return f.What == "the header Snapshot-Hash is not the one of the record"
	})
	require.GreaterOrEqual(t, i, 0)
	found := report.Findings[i]
	require.Equal(t, fsck.Finding{
		Stream: wire.LogStream("main"), Sequence: seq, Subject: executed.Subject, Town: "town-1",
		What: found.What, Want: found.Want, Got: strings.Repeat("0", 64),
	}, found)
	require.Len(t, found.Want, 64)
	require.True(t, slices.ContainsFunc(report.Findings, func(f fsck.Finding) bool {
		return f.Sequence == seq && f.What == "the key was accepted twice"
	}))
}
