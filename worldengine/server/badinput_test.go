package server_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// Whatever arrives gets a precise error, changes nothing, consumes no key, and leaves the server
// as it was: after all of it the handoff that the bad ones were made from is executed.
func TestBadHandoffs(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("town-1"), "")
	good := string(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	other := string(marshalled(t, propose(at, handoff.AdvanceProject, "bridge")))
	idOf := func(encoded, name string) string {
		_, rest, found := strings.Cut(encoded, `"`+name+`":"`)
		require.True(t, found)
		return rest[:strings.IndexByte(rest, '"')]
	}
	replace := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	for _, bad := range []struct {
		name, body string
		status     int
		code, path string
	}{
		{"nothing", "", 400, "INVALID_JSON", ""},
		{"not JSON", "hello", 400, "INVALID_JSON", ""},
		{"truncated", good[:len(good)/2], 400, "INVALID_JSON", "*"},
		{"an array", "[" + good + "]", 400, "SCHEMA_VALIDATION_FAILED", ""},
		{"trailing data", good + "{}", 400, "INVALID_JSON", ""},
		{"1.2 MB", replace(`"Because."`, `"`+strings.Repeat("x", 12<<20/10)+`"`), 413,
			"PAYLOAD_TOO_LARGE", ""},
		{"10,000 levels deep", strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), 400,
			"INVALID_JSON", "*"},
		{"a member twice", replace(`"advisory":true`, `"advisory":true,"advisory":true`), 400,
			"INVALID_JSON", "/advisory"},
		{"a member twice, escaped", replace(`"advisory":true`,
			`"advisory":true,"adv\u0069sory":true`), 400, "INVALID_JSON", "/advisory"},
		{"invalid UTF-8", replace("Because.", "\xff\xfe"), 400, "INVALID_JSON", "/proposal/reason"},
		{"a lone surrogate", replace("Because.", `\ud800`), 400, "INVALID_JSON",
			"/proposal/reason"},
		{"NaN", replace(`"priority":0.5`, `"priority":NaN`), 400, "INVALID_JSON",
			"/proposal/priority"},
		{"1e400", replace(`"priority":0.5`, `"priority":1e400`), 400, "INVALID_JSON",
			"/proposal/priority"},
		{"a number as a string", replace(`"decisionEpoch":15`, `"decisionEpoch":"15"`), 400,
			"SCHEMA_VALIDATION_FAILED", "/decisionEpoch"},
		{"unknown version", replace("execution-handoff.v1", "execution-handoff.v9"), 400,
			"SCHEMA_VALIDATION_FAILED", "/schemaVersion"},
		{"upper-case hash", replace(at.SnapshotHash, strings.ToUpper(at.SnapshotHash)), 400,
			"SCHEMA_VALIDATION_FAILED", "/snapshotHash"},
		{"the key of another proposal", replace(`"idempotencyKey":"`+idOf(good, "idempotencyKey"),
			`"idempotencyKey":"`+idOf(other, "idempotencyKey")), 400, "SCHEMA_VALIDATION_FAILED",
			"/idempotencyKey"},
		{"an id that is not its hash", replace(idOf(good, "handoffId"), idOf(other, "handoffId")),
			400, "SCHEMA_VALIDATION_FAILED", "/handoffId"},
		{"a command that is not the mapping", replace(`"command":"project advance town-1 wall"`,
			`"command":"mint Mara 999999"`), 400, "SCHEMA_VALIDATION_FAILED", "/command"},
		{"an epoch beyond 2^53-1", strings.ReplaceAll(strings.ReplaceAll(good, `"decisionEpoch":15`,
			`"decisionEpoch":9007199254740992`), `"expectedDecisionEpoch":15`,
			`"expectedDecisionEpoch":9007199254740992`), 400, "SCHEMA_VALIDATION_FAILED",
			"/decisionEpoch"},
	} {
		f := c.refused("handoff", []byte(bad.body))
		require.Equal(t, bad.status, f.Status, bad.name)
		require.Equal(t, bad.code, f.Code, bad.name)
		require.NotEmpty(t, f.Message, bad.name)
		require.NotEmpty(t, f.Details, bad.name)
		var paths []string
		for _, d := range f.Details {
			require.NotEmpty(t, d.Message)
			paths = append(paths, d.Path)
		}
		if bad.path != "*" {
			require.Contains(t, paths, bad.path, bad.name)
		}
		require.Equal(t, at, c.town("town-1"), "%s changed the town", bad.name)
	}
	for _, v := range vectors(t, "handoffs.invalid.json") {
		f := c.refused("handoff", v.Handoff)
		require.Equal(t, 400, f.Status, v.Name)
		require.Equal(t, "SCHEMA_VALIDATION_FAILED", f.Code, v.Name)
		require.NotEmpty(t, f.Details, v.Name)
	}
	require.Equal(t, handoff.Executed, c.send([]byte(good)).result.Status,
		"its key was not consumed")
}

// What is valid though it looks bad gets a correct result.
func TestOddButValidHandoffs(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	zero := snapshot("zero")
	zero.Day = 0
	at := c.put(zero, "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	odd := bytes.ReplaceAll(body, []byte(`Epoch":0`), []byte(`Epoch":-0`))
	require.NotEqual(t, body, odd)
	o := c.send(odd)
	require.Equal(t, handoff.Executed, o.result.Status, "-0 is 0")
	require.Contains(t, string(o.bytes), `"decisionEpoch":0,`)

	at = c.put(snapshot("t"), "")
	body = marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	odd = bytes.ReplaceAll(body, []byte(`Epoch":15`), []byte(`Epoch":1.5e1`))
	odd = bytes.Replace(odd, []byte(`{"schemaVersion":"proposal.v2"`),
		[]byte(`{"mood":{"of":["the","agent"]},"schemaVersion":"proposal.v2"`), 1)
	require.NotEqual(t, body, odd)
	require.Equal(t, handoff.Executed, c.send(odd).result.Status,
		"1.5e1 is 15, and an agent may add members to a proposal")
}

// The other verbs refuse bad requests as precisely.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	for _, bad := range []struct{ verb, body, code, path string }{
		{"town.get", `{}`, "SCHEMA_VALIDATION_FAILED", "/townId"},
		{"town.get", `{"townId":""}`, "SCHEMA_VALIDATION_FAILED", "/townId"},
		{"town.get", `{"townId":7}`, "SCHEMA_VALIDATION_FAILED", "/townId"},
		{"town.get", `{"townId":"a","townId":"a"}`, "INVALID_JSON", "/townId"},
		{"town.list", `{"limit":0}`, "SCHEMA_VALIDATION_FAILED", "/limit"},
		{"town.put", `{"snapshot":7}`, "SCHEMA_VALIDATION_FAILED", "/snapshot"},
		{"result.get", `{"idempotencyKey":"proposal_*"}`, "SCHEMA_VALIDATION_FAILED",
			"/idempotencyKey"},
		{"result.get", `{"idempotencyKey":"` + ">" + `"}`, "SCHEMA_VALIDATION_FAILED",
			"/idempotencyKey"},
		{"run.events", `{"runId":"*"}`, "SCHEMA_VALIDATION_FAILED", "/runId"},
		{"run.events", `{"runId":"a.b"}`, "SCHEMA_VALIDATION_FAILED", "/runId"},
	} {
		f := c.refused(bad.verb, []byte(bad.body))
		require.Equal(t, 400, f.Status, "%s %s", bad.verb, bad.body)
		require.Equal(t, bad.code, f.Code, "%s %s", bad.verb, bad.body)
		require.Len(t, f.Details, 1, "%s %s: %v", bad.verb, bad.body, f.Details)
		require.Equal(t, bad.path, f.Details[0].Path, "%s %s", bad.verb, bad.body)
	}
	f := c.refused("result.get", []byte(`{"idempotencyKey":"proposal_`+
		strings.Repeat("0", 64)+`"}`))
	require.Equal(t, []any{404, "UNKNOWN_RESULT"}, []any{f.Status, f.Code})
	f = c.refused("run.events", []byte(`{"runId":"00000000-0000-4000-8000-000000000000"}`))
	require.Equal(t, []any{404, "UNKNOWN_RUN"}, []any{f.Status, f.Code})
	require.Empty(t, list(c))
}

// A commit that would not fit into one NATS message is refused, and the town is as it was.
func TestRecordTooLarge(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	big := snapshot("t")
	long := strings.Repeat("m", 100_000)
	big.SideQuests[0].ID = long
	at := c.put(big, "")
	nc := c.nc
	require.Greater(t, nc.MaxPayload(), int64(1<<20))
	o := c.send(marshalled(t, propose(at, handoff.AcceptMission, long)))
	require.Equal(t, handoff.Executed, o.result.Status)
	f := c.refused("handoff", fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("y", 300_000)))
	require.Equal(t, []any{413, "PAYLOAD_TOO_LARGE"}, []any{f.Status, f.Code})
	require.Equal(t, *o.result.WorldState.SnapshotHash, c.town("t").SnapshotHash)
	require.Equal(t, "worldengine.v1.main.handoff", wire.Subject("main", "handoff"))
}

// A reply subject that a client makes up does not make the engine, whose rights an answer has,
// write into its own log, its other streams or JetStream.
func TestRepliesDoNotGoIntoTheStreams(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, withBus))
	at := c.put(snapshot("t"), "")
	js := c.streams()
	busStream(t, js)
	last := func() (seqs []uint64) {
		for _, name := range []string{
			wire.LogStream("main"), wire.EventStream("main"), wire.AlertStream("main"),
		} {
			stream, err := js.Stream(t.Context(), name)
			require.NoError(t, err)
			seqs = append(seqs, stream.CachedInfo().State.LastSeq)
		}
		return seqs
	}
	before := last()
	for _, hostile := range []string{
		"world.main.log.t", "world.main.refused.t", "world.main.control", "runevents.v2.main.t.run",
		"alerts.v1.main.X", "deadletter.v1.main.X.1.0", "$JS.API.STREAM.DELETE." +
			wire.EventStream("main"),
	} {
		require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "town.get"), hostile,
			[]byte(`{"townId":"t"}`)))
	}
	// What is asked behind them is answered behind them, so they are over.
	for range 50 {
		require.Equal(t, at.SnapshotHash, c.town("t").SnapshotHash)
	}
	require.Equal(t, before, last())
}

// An integer is one however it is written, and what has the form of a time has to be one: where it
// is not, the error says which.
func TestNumbersAndTimesOfRequests(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	runID := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))).runID
	for verb, body := range map[string]string{
		"town.list":     `{"limit":1e1}`,
		"run.events":    `{"runId":"` + runID + `","afterSeq":1.0,"limit":0.2e1}`,
		"run.list":      `{"after":0e5,"limit":50.0,"from":"2026-02-16T10:00:00.123456789123Z"}`,
		"control.pause": `{"townId":"t","drainTimeoutMs":1.5e3}`,
	} {
		reply := c.request(verb, []byte(body))
		require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s: %s", body, reply.Data)
	}
	f := c.refused("run.list", []byte(`{"to":"2026-02-31T10:00:00Z"}`))
	require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED"}, []any{f.Status, f.Code})
	require.Equal(t, []schemas.Violation{{Path: "/to", Message: "must be a time that there is"}},
		f.Details)
}
