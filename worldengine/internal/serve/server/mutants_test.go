package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/wire"
)

var (
	mutantCount = flag.Int("mutants", 150, "how many mutants of valid payloads are sent")
	mutantSeed  = flag.Uint64("mutants.seed", 1, "which mutants are sent")
	mutantVerb  = flag.String("mutants.verb", "",
		"send mutants of requests of this verb alone, such as handoff")
)

// Each mutant of a valid request gets exactly one answer of its schema: a result or an error that
// points into the request, and never that there was a defect. A refused one changes no town. In the
// end the server works as in the beginning, and nothing of the mutants is left in it.
func TestMutants(t *testing.T) { // alone: it counts goroutines
	baseline := 0
	h := newHostile(t, newWorld(t))
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
		remainder{baseline, 1 << 40}.require(t)
	}
}

// hostile sends mutants and keeps a model of the towns.
type hostile struct {
	*client
	m       *mutator
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
	host(t, w.Server, agree) // for towns that a mutant binds to a plugin
	other := h.putTown("another-town")
	h.towns[other.TownID] = other
	h.m.ids = []string{other.TownID, "no-such-town", other.SnapshotHash,
		"proposal_" + other.SnapshotHash,
		"handoff_" + other.SnapshotHash, uuid.NewSHA1(uuid.NameSpaceOID, nil).String()}
	h.prepare()
	return h
}

// prepare makes a town to send requests about, and a run of it: all of them valid and answered as
// such.
func (h *hostile) prepare() {
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
	run := fmt.Sprint("run-", h.sent) // nobody else appends to it
	of := map[string][]any{
		"town.put": {members{"snapshot": h.at.Snapshot, "expectedSnapshotHash": hash, "apply": "local"},
			members{"snapshot": snapshot(fmt.Sprintf("new-%d", h.sent))}},
		"town.patch": {members{"townId": id, "expectedSnapshotHash": hash, "patch": members{
			"pressure": members{"hope": 0.5}, "mission": members{"id": "m", "title": "M", "reward": 1},
			"projects": []any{members{"id": "p", "name": "P", "progress": 0.5, "status": "active"}}}}},
		"town.remove": {members{"townId": fmt.Sprintf("new-%d", h.sent)}},
		"run.append":  {appendRequest(id, written(run, runevents.StepStarted, "s", 1), written(run, "Told", "", 1))},
		"event.list":  {members{"after": "0", "townId": id, "limit": 20}},
		"handoff":     h.handoffs(),
	}
	for _, verb := range protocol.Verbs() {
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

// step sends one mutant, or now and then the valid request itself, and judges the answer.
func (h *hostile) step() {
	h.t.Helper()
	v := pick(h.m.g, h.requests())
	root := nodeOf(h.t, bodyOf(h.t, v.body))
	data, how := []byte(root.String()), "unchanged"
	if h.m.g.IntN(20) > 0 {
		data, how = h.m.mutant(v.request, root)
		// more is refused by the client's own library
		data = data[:min(len(data), embedded.MaxRequest)]
	}
	h.sent++
	h.now = fmt.Sprintf("%s, %s: %.3000q", v.verb, how, data)
	reply := h.exchange(v.verb, data)
	if len(data) == 0 && !slices.Contains(needPayload, v.verb) {
		data = []byte("{}")
	}
	if codeOf(reply) != "" {
		f := h.failureOf(reply)
		h.ended[fmt.Sprint(f.Status, " ", f.Code)]++
		h.judgeRefusal(&v, data, &f)
		if how == "unchanged" {
			require.NotEqual(h.t, 400, f.Status, "a valid request: %+v", f)
		}
	} else {
		h.ended["answered"]++
		h.judgeAnswer(&v, data, reply)
	}
	require.Equal(h.t, h.towns[h.at.TownID], h.town(h.at.TownID),
		"the town is as the accepted requests left it")
	if h.towns[h.at.TownID].Revision != h.at.Revision {
		h.prepare()
	}
}

// needPayload are the verbs whose requests need a payload; to the others none means {}.
var needPayload = []string{"handoff", "town.put", "town.patch", "run.append"}

// exchange sends a request and returns its answer.
func (h *hostile) exchange(verb string, data []byte) *nats.Msg {
	h.t.Helper()
	inbox := fmt.Sprint(h.inbox, ".", h.sent)
	require.NoError(h.t, h.nc.PublishRequest(wire.Subject(h.world, verb), inbox, data))
	for {
		select {
		case msg := <-h.answers:
			if h.got[msg.Subject]++; msg.Subject == inbox {
				return msg
			}
		case <-time.After(30 * time.Second):
			h.t.Fatal("there is no answer")
		}
	}
}

// judgeRefusal checks that an error is of the request and points into it.
func (h *hostile) judgeRefusal(v *valid, data []byte, f *failure) {
	h.t.Helper()
	if v.verb != string(wire.WorldsCreate) || f.Code != string(wire.CodeWorldNotServed) {
		require.Contains(h.t, []int{400, 404, 409, 413}, f.Status, "%+v", f)
	}
	for _, internal := range []string{"jsontext", "json:", "Go ", "unmarshal", "panic",
		"worldengine:"} {
		require.NotContains(h.t, f.Message, internal,
			"an error speaks of the request, not of how it was read")
	}
	if f.Status != 400 && f.Status != 413 {
		return
	}
	require.NotEmpty(h.t, f.Details)
	tree, mayBe := h.m.docs.mayBe(v.request, data)
	for _, d := range f.Details {
		require.NotEmpty(h.t, d.Message)
		if f.Code == "SCHEMA_VALIDATION_FAILED" {
			require.True(h.t, resolves(tree, d.Path), "%q leads nowhere: %+v", d.Path, f)
		}
	}
	_, strict := schemas.Decode(data, schemas.Limits{})
	if mayBe && strict == nil && f.Status == 400 && !slices.Contains(needPayload, v.verb) {
		require.NotEqual(h.t, "", f.Details[0].Path,
			"the schema accepts it, so there is a place that is wrong: %+v", f)
		// no schema knows how far the log is, nor the values of settings
		if f.Code != "INVALID_CURSOR" && !strings.HasPrefix(f.Details[0].Path, "/settings/") {
			require.Contains(h.t, f.Message, "time that there is", "the schema accepts it: %+v", f)
		}
	}
}

// judgeAnswer checks an accepted request, and updates the model.
func (h *hostile) judgeAnswer(v *valid, data []byte, reply *nats.Msg) {
	h.t.Helper()
	tree, mayBe := h.m.docs.mayBe(v.request, data)
	require.True(h.t, mayBe, "its schema refuses it, and it was accepted: %s", reply.Data)
	_, conforms := h.m.docs.mayBe(v.reply, reply.Data)
	require.True(h.t, conforms, "the answer is no %s: %s", v.reply, reply.Data)
	switch v.verb {
	case "handoff":
		h.judgeResult(tree, reply)
	case "town.put", "town.patch":
		var at townReply
		require.NoError(h.t, json.Unmarshal(reply.Data, &at))
		before := h.towns[at.TownID]
		require.GreaterOrEqual(h.t, at.DecisionEpoch, before.DecisionEpoch)
		require.Greater(h.t, at.Revision, before.Revision)
		h.towns[at.TownID] = at
	case "town.remove":
		id := tree.(members)["townId"].(string)
		h.towns[id] = h.put(h.towns[id].Snapshot, "") // what follows is about it
	case "control.pause":
		request, _ := tree.(members)
		resume := members{}
		if townID, ok := request["townId"]; ok {
			resume["townId"] = townID
		}
		require.Equal(h.t, "RUNNING", h.signal("control.resume", resume).Status)
		if townID, ok := request["townId"].(string); ok {
			at := h.town(townID)
			require.Equal(h.t, h.towns[townID].SnapshotHash, at.SnapshotHash)
			h.towns[townID] = at
		}
	case "control.resume", "run.cancel", "run.retry":
		h.t.Fatalf("nothing was paused, or failed: %s", reply.Data)
	}
}

// judgeResult checks the result of a handoff, whose ids must be right, and its town.
func (h *hostile) judgeResult(tree any, reply *nats.Msg) {
	h.t.Helper()
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	require.NoError(h.t, err)
	h.ended[string(result.Status)]++
	townID := tree.(members)["proposal"].(members)["townId"].(string)
	if result.Status != handoff.Executed && result.Status != handoff.Failed {
		return // the town has to be as it was
	}
	at := h.town(townID)
	require.Equal(h.t, *result.WorldState.SnapshotHash, at.SnapshotHash)
	before := h.towns[townID]
	require.Greater(h.t, at.Revision, before.Revision)
	require.Equal(h.t, result.Status == handoff.Executed, at.SnapshotHash != before.SnapshotHash)
	h.towns[townID] = at
}

// requireTowns checks all towns of the world against the model.
func (h *hostile) requireTowns() {
	h.t.Helper()
	listed := h.list()
	require.Len(h.t, listed, len(h.towns))
	for _, s := range listed {
		at := h.towns[s.TownID]
		require.Equal(h.t, []any{at.SnapshotHash, at.DecisionEpoch, at.Revision},
			[]any{s.SnapshotHash, s.DecisionEpoch, s.Revision}, s.TownID)
	}
}

// requireSingleAnswers checks that each mutant had one answer.
func (h *hostile) requireSingleAnswers() {
	h.t.Helper()
	h.town(h.at.TownID) // all answers before have arrived
	for len(h.answers) > 0 {
		h.got[(<-h.answers).Subject]++
	}
	require.Len(h.t, h.got, h.sent)
	for subject, times := range h.got {
		require.Equal(h.t, 1, times, "answers on %s", strings.TrimPrefix(subject, h.inbox))
	}
}

// lie is a mutant that a command was answered with.
type lie struct {
	data []byte
	how  string
}

// A plugin answers with mutants, and behind each with a valid refusal. Only a command-applied.v1 of
// this very command that says "applied" makes a handoff executed; each handoff gets a result all
// the same, and its town moves on by executed commands alone.
func TestMutatedPluginAnswers(t *testing.T) {
	t.Parallel()
	c := newWorld(t, bindPlugin, func(config *server.Config) { config.Engine.Retry.Attempts = 1 })
	h := parsed(t, propose(c.putTown("another-town"), handoff.AdvanceProject, "wall"))
	m := &mutator{g: rand.New(rand.NewPCG(*mutantSeed, 1)), docs: readDocuments(t),
		ids: []string{h.HandoffID, h.SnapshotHash, "another-town", h.IdempotencyKey}}
	lies, asked := make(chan lie, 1), ""
	plugin := connect(t, c.Server).nc
	_, err := plugin.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), func(msg *nats.Msg) {
		command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if !assert.NoError(t, err) {
			return
		}
		if command.ApplyID != asked {
			asked = command.ApplyID
			l := m.lieAbout(t, command)
			lies <- l
			_ = msg.Respond(l.data)
		}
		refusal := apply.Refuse(command, "IN_THE_END", "No.", false)
		data, err := refusal.MarshalWire()
		assert.NoError(t, err)
		_ = msg.Respond(data)
	})
	require.NoError(t, err)
	require.NoError(t, plugin.Flush())
	ended := map[handoff.ReasonCode]int{}
	for n := range *mutantCount {
		at := c.putTown(fmt.Sprint("town-", n))
		o := c.send(c.wall(at))
		ended[o.result.ReasonCode]++
		m.judgeLie(t, <-lies, at, o, c.town(at.TownID))
	}
	t.Logf("%d mutants: %v", *mutantCount, ended)
	require.NotZero(t, ended[handoff.ReasonExecuted])
	require.NotZero(t, ended[apply.ReasonPluginRejected])
}

// lieAbout returns a mutant of a valid answer to a command.
func (m *mutator) lieAbout(t *testing.T, c *apply.Command) lie {
	answers := []apply.GameAnswer{
		apply.Done(c), apply.Done(c), apply.Refuse(c, "PROTECTED_AREA", "No.", false),
		apply.Later(c, apply.Busy, time.Millisecond),
		apply.Later(c, apply.InProgress, time.Millisecond),
	}
	var err error
	answers[1].Snapshot, err = json.Marshal(c.ExpectedSnapshot)
	assert.NoError(t, err)
	a := pick(m.g, answers)
	data, err := a.MarshalWire()
	assert.NoError(t, err)
	l := lie{data, "unchanged"}
	if m.g.IntN(20) > 0 {
		l.data, l.how = m.mutant(schemas.CommandApplied, nodeOf(t, data))
	}
	return l
}

// judgeLie checks the result of a handoff whose command was answered with a mutant.
func (m *mutator) judgeLie(t *testing.T, l lie, at townReply, o outcome, now townReply) {
	tree, mayBe := m.docs.mayBe(schemas.CommandApplied, l.data)
	says, _ := tree.(members)
	ours := mayBe && says["applyId"] == o.result.HandoffID
	sent := fmt.Sprintf("-mutants.seed=%d, %s, %s: %.3000q ended as %s", *mutantSeed, at.TownID,
		l.how, l.data, o.bytes)
	require.Equal(t, *o.result.WorldState.SnapshotHash, now.SnapshotHash, sent)
	if o.result.Status == handoff.Executed {
		require.True(t, ours && says["status"] == "applied", sent)
		require.Greater(t, now.DecisionEpoch, at.DecisionEpoch, sent)
		return
	}
	require.Equal(t, handoff.Failed, o.result.Status, sent)
	require.Equal(t, at.SnapshotHash, now.SnapshotHash, sent)
	_, strict := schemas.Decode(l.data, schemas.Limits{})
	switch {
	case !ours || strict != nil || says["status"] == "refused":
		require.Equal(t, apply.ReasonPluginRejected, o.result.ReasonCode, sent)
	case says["status"] == "applied":
		require.Equal(t, apply.ReasonPluginStateInvalid, o.result.ReasonCode, sent)
		require.Contains(t, says, "snapshot", sent)
	}
}
