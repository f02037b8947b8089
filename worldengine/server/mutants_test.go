package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
)

var (
	mutantCount = flag.Int("mutants", 200, "how many mutants of valid payloads are sent")
	mutantSeed  = flag.Uint64("mutants.seed", 1, "which mutants are sent")
	mutantVerb  = flag.String("mutants.verb", "",
		"send mutants of requests of this verb alone, such as handoff")
)

// Each mutant of a valid request gets exactly one answer, which is what its schema says: a result
// or an error that points into the request, and never that of a defect. What is refused changes no
// town. In the end the server works as in the beginning, and nothing of the mutants is left in it.
func TestMutants(t *testing.T) { // alone: it counts goroutines
	baseline := 0
	srv := start(t, func(config *server.Config) { config.Engine.NewID = idsOf(*mutantSeed, 2) })
	h := newHostile(t, srv)
	for i := range *mutantCount {
		if i == 100 { // by then all that is made at its first use is there
			baseline = runtime.NumGoroutine()
		}
		h.step()
		if h.sent%500 == 0 {
			h.requireTowns()
		}
	}
	h.requireTowns()
	h.requireSingleAnswers()
	t.Logf("%d mutants of seed %d: %v", h.sent, *mutantSeed, h.ended)
	if *mutantCount > 100 {
		require.Eventually(t, func() bool { return runtime.NumGoroutine() <= baseline+2 },
			30*time.Second,
			10*time.Millisecond, "goroutines are left of the mutants: %d, and there were %d",
			runtime.NumGoroutine(), baseline)
	}
}

// idsOf draws UUIDs, the same in each run.
func idsOf(seed, stream uint64) func() string {
	g := rand.New(rand.NewPCG(seed, stream))
	var mu sync.Mutex
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		var id uuid.UUID
		for i := range id {
			id[i] = byte(g.UintN(256))
		}
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
		return id.String()
	}
}

// hostile sends mutants and keeps a model of the towns.
type hostile struct {
	*client
	m       *mutator
	newID   func() string
	answers chan *nats.Msg
	inbox   string
	got     map[string]int // by reply subject

	at     townReply            // the town that requests are about
	towns  map[string]townReply // as the accepted requests left them
	result outcome              // of a handoff of at's town, before it was put again
	key    string
	sent   int
	ended  map[string]int // by how it ended
	now    string         // the mutant that is on its way
}

func newHostile(t testing.TB, srv *server.Server) *hostile {
	h := &hostile{
		client: connect(t, srv), answers: make(chan *nats.Msg, 1024), got: map[string]int{},
		newID: idsOf(*mutantSeed, 3),
		towns: map[string]townReply{}, ended: map[string]int{},
		m: &mutator{g: rand.New(rand.NewPCG(*mutantSeed, 1)), docs: readDocuments(t)},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("-mutants.seed=%d, the %d. mutant: %s", *mutantSeed, h.sent, h.now)
		}
	})
	h.inbox = h.nc.NewInbox()
	_, err := h.nc.ChanSubscribe(h.inbox+".*", h.answers)
	require.NoError(t, err)
	host(t, srv, agree) // for towns that a mutant binds to a plugin
	other := h.put(snapshot("another-town"), "")
	h.towns[other.TownID] = other
	h.m.ids = []string{other.TownID, "no-such-town", other.SnapshotHash,
		"proposal_" + other.SnapshotHash,
		"handoff_" + other.SnapshotHash, uuid.NewSHA1(uuid.NameSpaceOID, nil).String()}
	h.begin()
	return h
}

// begin makes a town to send requests about, and a run of it: all of them valid and answered as
// such.
func (h *hostile) begin() {
	h.t.Helper()
	id := fmt.Sprintf("town-%d", h.sent)
	at := h.put(snapshot(id), "")
	body := marshalled(h.t, propose(at, handoff.AdvanceProject, "wall"))
	h.result = h.send(body)
	require.Equal(h.t, handoff.Executed, h.result.result.Status)
	h.key = h.result.result.IdempotencyKey
	h.at = h.town(id)
	h.towns[id] = h.at
	h.m.ids = append(h.m.ids[:6], h.at.SnapshotHash, at.SnapshotHash, h.key,
		h.result.result.HandoffID,
		h.result.runID, h.result.result.ResultID)
}

// written is a valid write of a run that nobody else appends to.
func (h *hostile) written(event runevents.EventType, stepID string) runevents.Write {
	w := written(fmt.Sprint("run-", h.sent), event, stepID, 1)
	w.EventID = h.newID()
	return w
}

// valid is a request that the server accepts.
type valid struct {
	verb           string
	request, reply schemas.Name
	body           any
}

// requests returns the valid requests that mutants are made of.
func (h *hostile) requests() []valid {
	list := h.allRequests()
	verbs := map[string]bool{}
	for _, v := range list {
		verbs[v.verb] = true
	}
	for verb, body := range others(h.t, slices.Collect(maps.Keys(verbs))) {
		list = append(list, valid{verb, requestOf(verb), replyOf(verb), body})
	}
	if *mutantVerb != "" {
		list = slices.DeleteFunc(list, func(v valid) bool { return v.verb != *mutantVerb })
		require.NotEmpty(h.t, list, "-mutants.verb=%s", *mutantVerb)
	}
	return list
}

// allRequests returns a valid request of each verb, and of each type of handoff.
func (h *hostile) allRequests() []valid {
	id, hash, runID := h.at.TownID, h.at.SnapshotHash, h.result.runID
	signal := map[string]any{"townId": id, "actorId": "ada", "reason": "by hand",
		"drainTimeoutMs": 1000}
	list := []valid{
		{"town.get", schemas.TownGetRequest, schemas.TownGetReply, map[string]any{"townId": id}},
		{"town.get", schemas.TownGetRequest, schemas.TownGetReply, map[string]any{
			"townId": id, "revision": h.at.Revision}},
		{"town.history", schemas.TownHistoryRequest, schemas.TownHistoryReply, map[string]any{
			"townId": id, "before": h.at.Revision + 1, "limit": 3}},
		{"memory.get", schemas.MemoryRequest, schemas.MemoryContext, map[string]any{
			"type": "world-memory-request.v1", "schemaVersion": 1, "scope": map[string]any{
				"townId": id, "factionId": nil, "chronicleLimit": 3, "historyLimit": 4}}},
		{"town.list", schemas.TownListRequest, schemas.TownListReply,
			map[string]any{"after": "a", "limit": 3}},
		{"town.put", schemas.TownPutRequest, schemas.TownGetReply, map[string]any{
			"snapshot": h.at.Snapshot, "expectedSnapshotHash": hash, "apply": "local"}},
		{"town.put", schemas.TownPutRequest, schemas.TownGetReply, map[string]any{
			"snapshot": snapshot(fmt.Sprintf("new-%d", h.sent))}},
		{"town.patch", schemas.TownPatchRequest, schemas.TownGetReply, map[string]any{
			"townId": id, "expectedSnapshotHash": hash, "patch": map[string]any{
				"pressure": map[string]any{"hope": 0.5},
				"mission":  map[string]any{"id": "m", "title": "M", "reward": 1},
				"projects": []any{map[string]any{"id": "p", "name": "P", "progress": 0.5,
					"status": "active"}},
			}}},
		{"town.remove", schemas.TownRemoveRequest, schemas.TownRemoveReply,
			map[string]any{"townId": fmt.Sprintf("new-%d", h.sent)}},
		{"result.get", schemas.ResultGetRequest, schemas.ResultGetReply,
			map[string]any{"idempotencyKey": h.key}},
		{"run.get", schemas.RunGetRequest, schemas.RunGetReply, map[string]any{"runId": runID}},
		{"run.list", schemas.RunListRequest, schemas.RunListReply, map[string]any{
			"townId": id, "actorId": "mayor-1", "type": "PROJECT_ADVANCE", "status": "executed",
			"order": "oldest",
			"from":  "2026-02-16T10:00:00Z", "to": "2996-02-16T10:00:00Z", "after": 0,
			"limit": 50}},
		{"run.events", schemas.RunEventsRequest, schemas.RunEventsReply, map[string]any{
			"runId": runID, "afterSeq": 1, "limit": 10}},
		{"run.append", schemas.RunAppendRequest, schemas.RunAppendReply, appendRequest(id,
			h.written(runevents.StepStarted, "s"), h.written("Told", ""))},
		{"run.cancel", schemas.RunCancelRequest, schemas.ControlReply, map[string]any{
			"runId": runID, "actorId": "ada", "reason": "late"}},
		{"run.retry", schemas.RunRetryRequest, schemas.RunRetryReply, map[string]any{
			"runId": runID, "actorId": "ada", "reason": "back"}},
		{"control.pause", schemas.ControlSignalRequest, schemas.ControlReply, signal},
		{"control.resume", schemas.ControlSignalRequest, schemas.ControlReply, signal},
		{"control.get", schemas.ControlGetRequest, schemas.ControlReply,
			map[string]any{"townId": id}},
		{"alert.list", schemas.AlertListRequest, schemas.AlertListReply,
			map[string]any{"after": 10, "limit": 5, "unacknowledged": true}},
		{"alert.ack", schemas.AlertAckRequest, schemas.AlertAckReply, map[string]any{
			"seq": 1, "actorId": "ada", "reason": "mended"}},
		{"approval.list", schemas.ApprovalListRequest, schemas.ApprovalListReply, map[string]any{
			"townId": id, "after": "2026", "limit": 5}},
		{"approval.decide", schemas.ApprovalDecideRequest, schemas.ApprovalDecideReply,
			map[string]any{
				"handoffId": h.result.result.HandoffID, "townId": id, "decision": "approve",
				"reason": "why", "actorId": "ada", "submit": true}},
		{"whoami", schemas.WhoAmIRequest, schemas.WhoAmIReply, map[string]any{}},
		{"world.status", schemas.WorldStatusRequest, schemas.WorldStatusReply,
			map[string]any{"damage": true}},
		{"world.samples", schemas.WorldSamplesRequest, schemas.WorldSamplesReply,
			map[string]any{"townId": "t", "minutes": 60, "points": 6}},
		{"world.clients", schemas.WorldClientsRequest, schemas.WorldClientsReply, map[string]any{}},
	}
	return append(list, h.handoffRequests()...)
}

// handoffRequests returns a valid handoff of each type, and one whose texts are odd.
func (h *hostile) handoffRequests() (list []valid) {
	at, err := town.Parse(h.at.Snapshot, schemas.Limits{})
	require.NoError(h.t, err)
	for _, kind := range handoff.ProposalTypes() {
		arguments := append(at.Snapshot.Arguments(kind), "gone") // of a mission there may be none
		list = append(list, valid{"handoff", schemas.ExecutionHandoff, schemas.ExecutionResult,
			json.RawMessage(marshalled(h.t, propose(h.at, kind, arguments[0], handoff.Precondition{
				Kind: handoff.PressureAtLeast, Field: "hope", Expected: 0.1})))})
	}
	if signed, err := handoff.New(h.odd()); err == nil {
		body, err := signed.MarshalWire()
		require.NoError(h.t, err)
		list = append(list, valid{"handoff", schemas.ExecutionHandoff, schemas.ExecutionResult,
			json.RawMessage(body)})
	}
	return list
}

// odd returns a proposal whose texts are odd; as a handoff it has the right ids all the same.
func (h *hostile) odd() handoff.Proposal {
	g := h.m.g
	text := func(usual string) string {
		if g.IntN(2) == 0 {
			return usual
		}
		return pick(g, append([]string{"another-town", "no-such-town"}, hardTexts...))
	}
	p := propose(h.at, handoff.AdvanceProject, text("wall"))
	p.ActorID, p.TownID, p.Reason = text("mayor-1"), text(p.TownID), text("Because.")
	p.ReasonTags = []string{text("a"), text("b")}
	p.Preconditions = []handoff.Precondition{{
		Kind: handoff.PreconditionKind(text("project_exists")), TargetID: text("wall"),
		Field:    text("threat"),
		Expected: pick(g, []any{nil, true, 0.5, -1.0, 9007199254740993.0, "dread", "\u202e"}),
	}}
	return p
}
