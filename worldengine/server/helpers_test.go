package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/index/indextest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// start starts a real server on a free port and ends it with the test.
func start(t testing.TB, change ...func(*server.Config)) *server.Server {
	t.Helper()
	data := func(config *server.Config) { config.Data = t.TempDir() }
	srv, err := server.Start(t.Context(),
		configure(append([]func(*server.Config){data}, change...)...))
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, srv) })
	return srv
}

// beside opens one more engine on the NATS of a server, with the engine's part of what change says,
// and ends it with the test.
func beside(t testing.TB, srv *server.Server, change ...func(*server.Config)) *worldengine.Engine {
	t.Helper()
	config := configure(change...)
	config.Engine.Logger = quiet()
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := worldengine.Open(t.Context(), nc, nc, config.Engine)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, e.Close(ctx))
	})
	return e
}

// open lets others join the server's NATS.
func open(config *server.Config) { config.Open = true }

// withBus has the server publish the run events into JetStream too.
func withBus(config *server.Config) { config.Engine.Bus = true }

func configure(change ...func(*server.Config)) server.Config {
	config := server.Config{Listen: "127.0.0.1:0", Sync: server.SyncInterval, Logger: quiet()}
	for _, c := range change {
		c(&config)
	}
	return config
}

func stop(t testing.TB, srv *server.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if nc, world, dir := srv.IndexInUse(ctx); dir != "" {
		indextest.RequireRebuilt(t, nc, world, dir)
	}
	require.NoError(t, srv.Close(ctx))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// client talks to a server as an agent does: over its own connection, with the fixed interface.
type client struct {
	t     testing.TB
	nc    *nats.Conn
	world string
	// within is how long a request may take; 0 means 20 s.
	within time.Duration
}

func connect(t testing.TB, srv *server.Server) *client {
	t.Helper()
	nc, err := nats.Connect(srv.URL(), nats.Timeout(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return &client{t: t, nc: nc, world: wire.DefaultWorld}
}

func (c *client) request(verb string, body []byte) *nats.Msg {
	c.t.Helper()
	var reply *nats.Msg
	ask := func() (err error) {
		reply, err = c.nc.Request(wire.Subject(c.world, verb), body, cmp.Or(c.within, 20*time.Second))
		return err
	}
	err := ask()
	if errors.Is(err, nats.ErrNoResponders) { // a server that has joined a NATS may stand by for a moment
		require.Eventually(c.t, func() bool { err = ask(); return !errors.Is(err, nats.ErrNoResponders) },
			20*time.Second, 20*time.Millisecond)
	}
	require.NoError(c.t, err)
	return reply
}

// patient makes a request as clients do: where the engine is behind (503) it asks again.
func (c *client) patient(verb string, body []byte) *nats.Msg {
	c.t.Helper()
	reply := c.request(verb, body)
	for until := time.Now().Add(time.Minute); time.Now().Before(until); reply = c.request(verb,
		body) {
		if reply.Header.Get(wire.ErrorCodeHeader) != "503" {
			break
		}
	}
	return reply
}

// call makes a request that must succeed, checks the answer against its schema, and reads it.
func call[T any](c *client, verb string, schema schemas.Name, request any) T {
	c.t.Helper()
	reply := c.patient(verb, mustJSON(c.t, request))
	require.Empty(c.t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	_, err := schemas.Parse(schema, reply.Data, schemas.Limits{Bytes: 64 << 20})
	require.NoError(c.t, err)
	var v T
	require.NoError(c.t, json.Unmarshal(reply.Data, &v))
	return v
}

// failure is an error reply.
type failure struct {
	Status     int
	Code       string
	Message    string
	Details    []schemas.Violation
	RetryAfter string
}

// refused makes a request that must be refused, and checks the error reply against its schema.
// While the index is behind the log, it asks again, as clients do.
func (c *client) refused(verb string, body []byte) failure {
	c.t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		f := c.failureOf(c.request(verb, body))
		if f.Code != string(wire.CodeIndexBehind) || time.Now().After(until) {
			return f
		}
	}
}

func (c *client) failureOf(reply *nats.Msg) failure {
	c.t.Helper()
	status, err := strconv.Atoi(reply.Header.Get("Nats-Service-Error-Code"))
	require.NoError(c.t, err, "no error reply: %s", reply.Data)
	require.NotEmpty(c.t, reply.Header.Get("Nats-Service-Error"))
	_, err = schemas.Parse(schemas.Error, reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	var body struct {
		Error struct {
			Code    string
			Message string
			Details []schemas.Violation
		}
	}
	require.NoError(c.t, json.Unmarshal(reply.Data, &body))
	return failure{
		Status: status, Code: body.Error.Code, Message: body.Error.Message,
		Details: body.Error.Details, RetryAfter: reply.Header.Get(wire.RetryAfterHeader),
	}
}

// outcome is the answer to a handoff.
type outcome struct {
	runID  string
	bytes  []byte
	result *handoff.Result
}

// send sends a handoff that must get a result, which must verify.
func (c *client) send(body []byte) outcome {
	c.t.Helper()
	return c.resultOf(c.patient("handoff", body))
}

// townReply is the answer of town.get and town.put.
type townReply struct {
	TownID        string
	Snapshot      json.RawMessage
	SnapshotHash  string
	DecisionEpoch int64
	Revision      uint64
}

func (c *client) town(id string) townReply {
	c.t.Helper()
	return call[townReply](c, "town.get", schemas.TownGetReply, map[string]any{"townId": id})
}

func (c *client) put(snapshot any, expected string) townReply {
	c.t.Helper()
	return call[townReply](c, "town.put", schemas.TownGetReply, putRequest(snapshot, expected))
}

func putRequest(snapshot any, expected string) map[string]any {
	request := map[string]any{"snapshot": snapshot}
	if expected != "" {
		request["expectedSnapshotHash"] = expected
	}
	return request
}

func (c *client) events(runID string) []runevents.Record {
	c.t.Helper()
	page := call[struct {
		Events       []runevents.Record
		LastEventSeq int64
	}](c, "run.events", schemas.RunEventsReply, map[string]any{"runId": runID})
	require.NotEmpty(c.t, page.Events)
	require.Equal(c.t, page.Events[len(page.Events)-1].RunSeq, page.LastEventSeq)
	for i := range page.Events {
		requirePayload(c.t, &page.Events[i])
	}
	return page.Events
}

// requirePayload holds the payload of an event against the schema of its type, if there is one.
func requirePayload(t testing.TB, e *runevents.Record) {
	t.Helper()
	_, err := schemas.Source(schemas.Name(e.EventType))
	if err != nil || e.Payload == nil {
		return
	}
	_, err = schemas.Parse(schemas.Name(e.EventType), e.Payload, schemas.Limits{})
	require.NoError(t, err, "%s: %s", e.EventType, e.Payload)
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	if raw, ok := v.(json.RawMessage); ok {
		return raw
	}
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// marshalled makes the bytes of a handoff.
func marshalled(t testing.TB, p handoff.Proposal) []byte {
	t.Helper()
	h, err := handoff.New(p)
	require.NoError(t, err)
	data, err := h.MarshalWire()
	require.NoError(t, err)
	return data
}

// snapshot is a town to try everything on.
func snapshot(id string) *town.Snapshot {
	return &town.Snapshot{
		SchemaVersion: town.SchemaVersion, TownID: id, Day: 15,
		SideQuests: []town.SideQuest{{ID: "q-escort", Title: "Escort"},
			{ID: "q-scout", Title: "Scout"}},
		Pressure: town.Pressure{Threat: 0.8, Scarcity: 0.4, Hope: 0.3, Dread: 0.6},
		Projects: []town.Project{
			{ID: "bridge", Name: "Bridge", Progress: 0.4, Status: town.Blocked},
			{ID: "wall", Name: "Wall", Progress: 0.6, Status: town.Active},
		},
	}
}

// propose makes a proposal from the state that town.get shows.
func propose(
	at townReply, kind handoff.ProposalType, argument string, pre ...handoff.Precondition,
) handoff.Proposal {
	return handoff.Proposal{
		Type: kind, ActorID: "mayor-1", TownID: at.TownID, Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch, Preconditions: pre,
	}
}

// vector is an entry of the vectors that the agents' own library printed.
type vector struct {
	Name         string
	SnapshotName string
	From         string
	Snapshot     json.RawMessage
	SnapshotHash string
	Handoff      json.RawMessage
}

func vectors(t testing.TB, file string) []vector {
	t.Helper()
	data, err := os.ReadFile("../../testdata/vectors/" + file)
	require.NoError(t, err)
	var list []vector
	require.NoError(t, json.Unmarshal(data, &list))
	require.NotEmpty(t, list)
	return list
}

func compact(t testing.TB, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, data))
	return b.String()
}

func ptr[T any](v T) *T { return &v }
