package server_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

var (
	mutantCount = flag.Int("mutants", 200, "how many mutants of valid payloads are sent")
	mutantSeed  = flag.Uint64("mutants.seed", 1, "which mutants are sent")
	mutantVerb  = flag.String("mutants.verb", "",
		"send mutants of requests of this verb alone, such as handoff")
)

// Each mutant of a valid request gets exactly one answer of its schema: a result or an error that
// points into the request, and never that there was a defect. A refused one changes no town. In the
// end the server works as in the beginning, and nothing of the mutants is left in it.
func TestMutants(t *testing.T) { // alone: it counts goroutines
	baseline := 0
	h := newHostile(t, newWorld(t, func(config *server.Config) {
		config.Engine.NewID = idsOf(*mutantSeed, 2)
	}))
	for i := range *mutantCount {
		if i == 100 { // by then every part that is made at its first use is there
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
		rest{baseline, 1 << 40}.require(t)
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

func newHostile(t testing.TB, w *world) *hostile {
	h := &hostile{
		client: w.client, answers: make(chan *nats.Msg, 1024), got: map[string]int{},
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
	host(t, w.srv, agree) // for towns that a mutant binds to a plugin
	other := h.putTown("another-town")
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
	at := h.putTown(id)
	h.result = h.executes(h.wall(at))
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

// requests returns the valid requests that mutants are made of: the examples of the schemas, about
// the town and the run of now, and requests that need its state.
func (h *hostile) requests() (list []valid) {
	id, hash := h.at.TownID, h.at.SnapshotHash
	now := strings.NewReplacer(`"town-threatened"`, `"`+id+`"`,
		"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", h.result.runID,
		"proposal_2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", h.key)
	of := map[string][]any{
		"town.put": {members{"snapshot": h.at.Snapshot, "expectedSnapshotHash": hash, "apply": "local"},
			members{"snapshot": snapshot(fmt.Sprintf("new-%d", h.sent))}},
		"town.patch": {members{"townId": id, "expectedSnapshotHash": hash, "patch": members{
			"pressure": members{"hope": 0.5}, "mission": members{"id": "m", "title": "M", "reward": 1},
			"projects": []any{members{"id": "p", "name": "P", "progress": 0.5, "status": "active"}}}}},
		"town.remove": {members{"townId": fmt.Sprintf("new-%d", h.sent)}},
		"run.append":  {appendRequest(id, h.written(runevents.StepStarted, "s"), h.written("Told", ""))},
		"event.list":  {members{"after": "0", "townId": id, "limit": 20}},
		"handoff":     h.handoffs(),
	}
	for _, verb := range wire.Verbs() {
		if *mutantVerb != "" && string(verb) != *mutantVerb {
			continue
		}
		bodies := of[string(verb)]
		if bodies == nil {
			for _, example := range examples(h.t, string(verb)) {
				bodies = append(bodies, now.Replace(example))
			}
		}
		for _, body := range bodies {
			list = append(list, valid{string(verb), schemas.RequestOf(string(verb)), schemas.ReplyOf(string(verb)), body})
		}
	}
	require.NotEmpty(h.t, list, "-mutants.verb=%s", *mutantVerb)
	return list
}

// handoffs returns a valid handoff of each type, and one whose texts are odd.
func (h *hostile) handoffs() (list []any) {
	at, err := town.Parse(h.at.Snapshot, schemas.Limits{})
	require.NoError(h.t, err)
	for _, kind := range handoff.ProposalTypes() {
		arguments := append(at.Snapshot.Arguments(kind), "gone") // of a mission there may be none
		list = append(list, marshalled(h.t, propose(h.at, kind, arguments[0], handoff.Precondition{
			Kind: handoff.PressureAtLeast, Field: "hope", Expected: 0.1})))
	}
	if signed, err := handoff.New(h.odd()); err == nil {
		body, err := signed.MarshalWire()
		require.NoError(h.t, err)
		list = append(list, body)
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
