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

// header gives a record another header.
func header(kind string, n int, name, value string) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		msg.Header[name] = []string{value}
		return log, msg.Sequence
	}
}

// Each fault of a single message is found: one that is forged, or that a defect wrote.
func TestFsck_TamperedMessages(t *testing.T) {
	log := newCheckedWorld(t, worldengine.Config{}).populate().messages()
	requireTampered(t, log, []tamper{
		{"no JSON", change("handoff", 0, `{"schemaVersion"`, `"schemaVersion"`)},
		{"another version", change("handoff", 0, "commit-record.v1", "commit-record.v9")},
		{"an unknown kind", change("handoff", 0, `"kind":"handoff"`, `"kind":"wish"`)},
		{"another kind in the header", header("handoff", 0, "Kind", "put")},
		{"another hash in the header", header("handoff", 0, "Snapshot-Hash",
			strings.Repeat("0", 64))},
		{"another day in the header", header("handoff", 0, "Decision-Epoch", "99")},
		{"another town in the header", header("handoff", 0, "Town-Id", "town-2")},
		{"another run in the header", header("handoff", 0, "Run-Id", "another")},
		{"another key in the header", header("handoff", 0, "Key", "another")},
		{"another town", change("handoff", 0, `"townId":"town-1"`, `"townId":"town-2"`)},
		{"another state", change("handoff", 0, `"hope":0.`, `"hope":0.0`)},
		{"a state that is not canonical", change("handoff", 0, `"snapshot":{`, `"snapshot":{ `)},
		{"no state", change("handoff", 0, `"snapshot":{"day":`, `"snapshot":{"night":`)},
		{"the state of another town", swap("handoff", 0, "snapshot", "result", "handoff", 3)},
		{"the state of a failure", swap("handoff", 2, "snapshot", "result", "handoff", 1)},
		{"a failure with a new state", swap("handoff", 1, "snapshot", "result", "handoff", 2)},
		{"a put of an earlier day", change("put", 1, `"day":16`, `"day":1`)},
		{"a commit that was not guarded", unguarded("handoff", 0)},
		{"a result that does not verify", change("handoff", 0, `"reasonCode":"EXECUTED"`,
			`"reasonCode":"DONE"`)},
		{"the result of a refusal", swap("handoff", 0, "result", "run", "refused", 1)},
		{"a refusal with the result of an acceptance", swap("refused", 1, "result", "run",
			"handoff", 0)},
		{"a refusal of another town", change("refused", 1, `"townId":"town-1"`,
			`"townId":"town-2"`)},
		{"a refusal of a town that exists", change("refused", 9, `"townId":"nowhere"`,
			`"townId":"town-1"`)},
		{"no run", change("handoff", 0, `"run":{`, `"ran":{`)},
		{"a run without a UUID", change("handoff", 0, `"run":{"runId":"`, `"run":{"runId":"x`)},
		{"events without a place", change("handoff", 0, `"firstSeq":1`, `"firstSeq":0`)},
		{"an event without a UUID", change("handoff", 0, `"eventId":"`, `"eventId":"x`)},
		{"an event without its time", change("handoff", 0, `Z","payload"`, `","payload"`)},
		{"an event twice", change("handoff", 0, `"StepCompleted","stepId":"stale-check"`,
			`"StepStarted","stepId":"stale-check"`)},
		{"an event without a key", change("handoff", 0, `"stepId":"stale-check"`,
			`"stepId":"a|b"`)},
		{"an invalid transition of the run", change("handoff", 0, `"RunStarted"`,
			`"RunResumed"`)},
		{"an invalid transition of a step", change("handoff", 0,
			`"StepStarted","stepId":"stale-check"`, `"StepFailed","stepId":"stale-check"`)},
		{"others' events in the place of others", change("events", 1, `"firstSeq":2`,
			`"firstSeq":1`)},
		{"others' event without a UUID", change("events", 1, `"eventId":"`, `"eventId":"x`)},
		{"others' events of another run", change("events", 1, `"runId":"`, `"runId":"x`)},
		{"others' append that was not guarded", unguarded("events", 1)},
	})
}

// Damage in the log is reported and cannot be repaired.
func TestFsck_LogStaysDamaged(t *testing.T) {
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
