package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/server"
	"worldengine/worldengine/service"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// padded makes a payload of exactly so many bytes with white space behind it.
func padded(t testing.TB, body []byte, size int) []byte {
	t.Helper()
	require.LessOrEqual(t, len(body), size)
	return append(slices.Clone(body), strings.Repeat(" ", size-len(body))...)
}

// others returns the verbs that a table does not have, with the example of each one's request.
func others(t testing.TB, table []string) map[string]json.RawMessage {
	t.Helper()
	bodies := map[string]json.RawMessage{}
	for _, verb := range wire.Verbs() {
		if slices.Contains(table, string(verb)) {
			continue
		}
		source, err := schemas.Source(requestOf(string(verb)))
		require.NoError(t, err, "a table of verbs does not have %s", verb)
		var document struct{ Examples []json.RawMessage }
		require.NoError(t, json.Unmarshal(source, &document))
		require.NotEmpty(t, document.Examples, verb)
		bodies[string(verb)] = document.Examples[0]
	}
	return bodies
}

// requestOf and replyOf are the schemas of a verb that has its own.
func requestOf(verb string) schemas.Name {
	if verb == string(wire.MemoryGet) {
		return schemas.MemoryRequest
	}
	return schemas.Name(strings.ReplaceAll(verb, ".", "-") + "-request.v1")
}

func replyOf(verb string) schemas.Name {
	return schemas.Name(strings.ReplaceAll(verb, ".", "-") + "-reply.v1")
}

// Each verb reads payloads up to its limit and answers one byte more with 413 and both sizes.
func TestPayloadLimits(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(config *server.Config) { config.Service.MaxHandoff = 100_000 }))
	at := c.put(snapshot("t"), "")
	runID := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))).runID
	now := c.town("t").SnapshotHash
	const most, appends = 64 << 10, 1 << 20
	type row struct {
		verb   string
		limit  int
		body   any
		status string // of the request when it is read
	}
	rows := []row{
		{"handoff", 100_000,
			json.RawMessage(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))), ""},
		{"town.put", service.DefaultMaxSnapshot, putRequest(snapshot("t"), ""), "409"},
		{"town.patch", service.DefaultMaxSnapshot, map[string]any{
			"townId": "t", "patch": map[string]any{}, "expectedSnapshotHash": at.SnapshotHash},
			"409"},
		{"run.append", appends, appendRequest("t", written("r", runevents.StepStarted, "s", 1)),
			""},
		{"town.get", most, map[string]any{"townId": "t"}, ""},
		{"town.history", most, map[string]any{"townId": "t"}, ""},
		{"memory.get", most, remember("t"), ""},
		{"town.list", most, map[string]any{}, ""},
		{"result.get", most, map[string]any{"idempotencyKey": "proposal_" +
			strings.Repeat("0", 64)}, "404"},
		{"run.get", most, map[string]any{"runId": runID}, ""},
		{"run.list", most, map[string]any{}, ""},
		{"run.events", most, map[string]any{"runId": runID}, ""},
		{"run.cancel", most, map[string]any{"runId": runID}, "409"},
		{"run.retry", most, map[string]any{"runId": runID}, "409"},
		{"control.get", most, map[string]any{"townId": "t"}, ""},
		{"control.pause", most, map[string]any{"townId": "u"}, "404"},
		{"control.resume", most, map[string]any{"townId": "t"}, "409"},
		{"town.remove", most, map[string]any{"townId": "u"}, "404"},
		{"alert.list", most, map[string]any{}, ""},
		{"alert.ack", most, map[string]any{"seq": 1 << 50}, "404"},
		{"approval.list", most, map[string]any{}, ""},
		{"approval.decide", most, map[string]any{
			"handoffId": "handoff_" + strings.Repeat("0", 64), "townId": "t", "decision": "reject",
			"reason": ""}, "404"},
		{"whoami", most, map[string]any{}, ""},
		{"world.status", most, map[string]any{}, ""},
		{"world.samples", most, map[string]any{}, ""},
		{"world.clients", most, map[string]any{}, ""},
		{"event.list", most, map[string]any{"after": "0"}, ""},
	}
	var verbs []string
	for _, l := range rows {
		verbs = append(verbs, l.verb)
	}
	for verb, body := range others(t, verbs) {
		rows = append(rows, row{verb, most, body, ""})
	}
	for _, l := range rows {
		body := mustJSON(t, l.body)
		for _, size := range []int{l.limit - 1, l.limit} {
			reply := c.request(l.verb, padded(t, body, size))
			require.Equal(t, l.status, reply.Header.Get("Nats-Service-Error-Code"), "%s of %d: %s",
				l.verb, size, reply.Data)
		}
		f := c.refused(l.verb, padded(t, body, l.limit+1))
		require.Equal(t, []any{413, "PAYLOAD_TOO_LARGE"}, []any{f.Status, f.Code}, l.verb)
		require.Contains(t, f.Message, fmt.Sprint(l.limit+1), l.verb)
		require.Contains(t, f.Message, fmt.Sprint(l.limit), l.verb)
	}
	require.Equal(t, now, c.town("t").SnapshotHash)
}

// Up to the largest message that NATS takes there is an answer; one beyond is refused by the
// client's own library, and ends the connection of a client that sends it all the same. Nobody else
// notices.
func TestBeyondWhatNATSTakes(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	most := int(c.nc.MaxPayload())
	for _, verb := range []string{"handoff", "town.put", "town.get", "run.append"} {
		f := c.refused(verb, make([]byte, most))
		require.Equal(t, []any{413, "PAYLOAD_TOO_LARGE"}, []any{f.Status, f.Code}, verb)
	}
	_, err := c.nc.Request(wire.Subject("main", "town.get"), make([]byte, most+1), 0)
	require.ErrorIs(t, err, nats.ErrMaxPayload)
	conn := raw(t, srv)
	_, err = fmt.Fprintf(conn, "CONNECT {}\r\nPUB worldengine.v1.main.town.get in %d\r\n", most+1)
	require.NoError(t, err)
	said, _ := io.ReadAll(conn) // a reset connection is closed too
	require.Contains(t, string(said), "Maximum Payload Violation")
	require.Equal(t, at, c.town("t"))
}

// Headers count for the size of a message and for nothing else.
func TestHeaders(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	for _, size := range []int{1, 4096, 65_536, 1 << 20} {
		msg := nats.NewMsg(wire.Subject("main", "town.get"))
		msg.Data = []byte(`{"townId":"t"}`)
		msg.Header.Set("Large", strings.Repeat("h", size))
		for i := range min(size, 1000) {
			msg.Header.Add("Many", fmt.Sprint(i))
		}
		reply, err := c.nc.RequestMsgWithContext(t.Context(), msg)
		require.NoError(t, err)
		require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
		var got townReply
		require.NoError(t, json.Unmarshal(reply.Data, &got))
		require.Equal(t, at, got)
	}
}

// Values at a bound of their schema are taken, those beyond are refused at their place.
func TestSchemaLimits(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	quests := func(n int) func(*town.Snapshot) {
		return func(s *town.Snapshot) {
			s.SideQuests = nil
			for i := range n {
				s.SideQuests = append(s.SideQuests,
					town.SideQuest{ID: fmt.Sprint("q", i), Title: "A quest"})
			}
		}
	}
	projects := func(n int) func(*town.Snapshot) {
		return func(s *town.Snapshot) {
			s.Projects = nil
			for i := range n {
				s.Projects = append(s.Projects,
					town.Project{ID: fmt.Sprint("p", i), Name: "A project", Status: town.Active})
			}
		}
	}
	day := func(d int64) func(*town.Snapshot) { return func(s *town.Snapshot) { s.Day = d } }
	complexity := func(v float64) func(*town.Snapshot) {
		return func(s *town.Snapshot) { s.SideQuests[0].Complexity = &v }
	}
	hope := func(v float64) func(*town.Snapshot) {
		return func(s *town.Snapshot) { s.Pressure.Hope = v }
	}
	for i, b := range []struct {
		path string
		at   []func(*town.Snapshot)
		over []func(*town.Snapshot)
	}{
		{"/snapshot/sideQuests", []func(*town.Snapshot){quests(99), quests(100)},
			[]func(*town.Snapshot){quests(101)}},
		{"/snapshot/projects", []func(*town.Snapshot){projects(99), projects(100)},
			[]func(*town.Snapshot){projects(101)}},
		{"/snapshot/day", []func(*town.Snapshot){day(0), day(1<<53 - 1)},
			[]func(*town.Snapshot){day(-1), day(1 << 53)}},
		{"/snapshot/sideQuests/0/complexity", []func(*town.Snapshot){complexity(0), complexity(10)},
			[]func(*town.Snapshot){complexity(-1e-9), complexity(10.000001)}},
		{"/snapshot/pressure/hope", []func(*town.Snapshot){hope(0), hope(1)},
			[]func(*town.Snapshot){hope(-1e-9), hope(1.000001)}},
	} {
		for j, change := range b.at {
			s := snapshot(fmt.Sprintf("t-%d-%d", i, j))
			change(s)
			c.put(s, "")
		}
		for _, change := range b.over {
			s := snapshot("over")
			change(s)
			f := c.refused("town.put", mustJSON(t, putRequest(s, "")))
			require.Equal(t, []any{400, "SCHEMA_VALIDATION_FAILED"},
				[]any{f.Status, f.Code}, b.path)
			require.Equal(t, b.path, f.Details[0].Path)
		}
	}
	f := c.refused("town.get", []byte(`{"townId":"over"}`))
	require.Equal(t, "UNKNOWN_TOWN", f.Code)
	writes := func(n int) (list []runevents.Write) {
		for i := range n {
			list = append(list, written("r", runevents.StepStarted, fmt.Sprint("s", i), 1))
		}
		return list
	}
	require.Len(t, c.append("t", writes(runevents.MaxAppend)...), runevents.MaxAppend)
	f = c.refused("run.append", mustJSON(t, appendRequest("t", writes(runevents.MaxAppend+1)...)))
	require.Equal(t, []any{400, "/events"}, []any{f.Status, f.Details[0].Path})
}

// 32 levels of nesting are read, one more is refused at its place.
func TestDepthLimit(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	deep := func(levels int) []byte {
		// proposals tolerate members that have no name; two levels are around it
		body := string(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
		open, end := strings.Repeat("[", levels-2), strings.Repeat("]", levels-2)
		return []byte(strings.Replace(body, `"proposal":{`, `"proposal":{"mood":`+open+end+`,`, 1))
	}
	f := c.refused("handoff", deep(schemas.DefaultDepth+1))
	require.Equal(t, []any{400, "INVALID_JSON"}, []any{f.Status, f.Code})
	require.Contains(t, f.Details[0].Path, "/proposal/mood/0/0")
	require.Equal(t, handoff.Executed, c.send(deep(schemas.DefaultDepth)).result.Status)
}

// Town ids of any length work, on both sides of what fits into a subject as it is.
func TestTownIDLengths(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	for _, id := range []string{
		"a", strings.Repeat("a", 127), strings.Repeat("a", 128), strings.Repeat("a", 129),
		strings.Repeat("é", 21),
		strings.Repeat("é", 22), strings.Repeat("b", 4096), strings.Repeat("c", 60_000),
		strings.Repeat("%", 42), strings.Repeat(".", 43),
	} {
		at := c.put(snapshot(id), "")
		require.Equal(t, at, c.town(id))
		o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
		require.Equal(t, handoff.Executed, o.result.Status, "%d bytes", len(id))
		require.NotEmpty(t, c.events(o.runID))
	}
	require.Len(t, list(c), 10)
}
