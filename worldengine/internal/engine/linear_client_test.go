package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/wire"
)

// linearClient makes one call after another.
type linearClient struct {
	*linearRun
	id     int
	nc     *nats.Conn
	random *rand.Rand
}

func (c *linearClient) work() {
	for range c.each {
		c.call(c.next())
	}
}

// next draws a call. Most use an observed state of a town, so that they race each other.
func (c *linearClient) next() linearCall {
	id := fmt.Sprint("town ", c.random.IntN(linearTowns))
	if c.id == 0 && c.random.IntN(3) > 0 { // an operator
		if run := c.openRun(); run != "" {
			return linearCall{town: linearGame, cancel: run, force: c.random.IntN(3) == 0}
		}
		id = "town 0" // which keeps nobody waiting
	}
	view, earlier, waits := c.seen(id)
	switch n := c.random.IntN(100); {
	case n < 25 || view == nil && n < 60:
		return linearCall{town: id}
	case n < 30 || view == nil:
		return linearCall{town: id, put: linearTown(id, c.random.Int64N(3))}
	case n < 38:
		changed := *view.Snapshot // and lists of its own, since NewState puts them in order
		changed.SideQuests, changed.Projects = slices.Clone(changed.SideQuests),
			slices.Clone(changed.Projects)
		changed.Pressure.Threat = float64(c.random.IntN(1000)) / 1000
		changed.Day = max(0, changed.Day+c.random.Int64N(3)-1)
		state := town.NewState(&changed)
		return linearCall{town: id, put: &state, expected: view.Hash}
	case n < 50 && waits != nil:
		d := &linearDecision{
			handoffID: waits.HandoffID, hash: linearHash(waits), approve: c.random.IntN(3) > 0,
			person: fmt.Sprint("person ", c.random.IntN(2)),
		}
		if d.approve && c.random.IntN(2) == 0 {
			d.submit = waits
		}
		return linearCall{town: waits.Proposal.TownID, decide: d}
	case n < 60 && waits != nil:
		return linearCall{town: waits.Proposal.TownID, handoff: waits}
	case n < 62 && earlier != nil:
		return linearCall{town: earlier.Proposal.TownID, handoff: earlier}
	case n < 65 && earlier != nil:
		return linearCall{
			town: earlier.Proposal.TownID, key: earlier.IdempotencyKey,
			anyTown: c.random.IntN(3) == 0,
		}
	case n < 69 && earlier != nil:
		// a key for another handoff, of another town or not
		return c.handoff(view, earlier.ProposalID)
	}
	return c.handoff(view, "")
}

// openRun returns a linearGame run without an end in the world's list of runs, "" if there is none.
func (c *linearClient) openRun() string {
	reply, err := c.request(string(wire.RunList), []byte(`{"townId": "`+linearGame+`", "limit": 10}`))
	if err != nil {
		return ""
	}
	var list struct {
		Runs []struct{ RunID, Status string }
	}
	if err := json.Unmarshal(reply.Data, &list); err != nil {
		return ""
	}
	var open []string
	for _, r := range list.Runs {
		if r.Status == "RUNNING" || r.Status == "PENDING" || r.Status == "APPROVED" {
			open = append(open, r.RunID)
		}
	}
	if len(open) == 0 {
		return ""
	}
	return open[c.random.IntN(len(open))]
}

// seen returns a town's last observed state, an earlier handoff, and one that needs an approval.
func (c *linearClient) seen(id string) (view *town.State, earlier, waits *handoff.Handoff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range slices.Backward(c.views) {
		if c.views[i].Snapshot.TownID == id {
			view = &c.views[i]
			break
		}
	}
	if n := len(c.sent); n > 0 {
		earlier = c.sent[n-1-c.random.IntN(min(n, 12))]
	}
	if n := len(c.awaitingApproval); n > 0 {
		waits = c.awaitingApproval[n-1-c.random.IntN(min(n, 2))]
	}
	return view, earlier, waits
}

func linearTown(id string, day int64) *town.State {
	s := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, TownID: id, Day: day,
		SideQuests: []town.SideQuest{{ID: "scout", Title: "Scout"}},
		Projects: []town.Project{
			{ID: "bridge", Name: "Bridge", Status: town.Blocked},
			{ID: "wall", Name: "Wall", Status: town.Active},
		},
	})
	return &s
}

// handoff makes some handoff for an observed state; with key, one of another's key.
func (c *linearClient) handoff(view *town.State, key string) linearCall {
	kinds := []struct {
		kind     handoff.ProposalType
		argument string
		pre      []handoff.Precondition
	}{
		{handoff.TalkToTownsfolk, "casual", nil},
		{handoff.PlanSalvage, "general", nil}, // take an approval
		{handoff.PlanSalvage, "dread", nil},
		{handoff.AdvanceProject, "wall", nil},
		{handoff.AdvanceProject, "bridge", nil}, // fails
		{handoff.AcceptMission, "scout", []handoff.Precondition{{Kind: handoff.MissionAbsent}}},
		{handoff.AdvanceProject, "moat",
			[]handoff.Precondition{{Kind: handoff.ProjectExists, TargetID: "moat"}}},
	}
	kind := kinds[c.random.IntN(len(kinds))]
	h, err := handoff.New(handoff.Proposal{
		ProposalID: key, Type: kind.kind, ActorID: fmt.Sprint("mayor ", c.id),
		TownID: view.Snapshot.TownID,
		Reason: "Because.", Args: map[string]string{kind.kind.ArgumentName(): kind.argument},
		Priority:     float64(c.random.IntN(1000)) / 1000,
		SnapshotHash: view.Hash, DecisionEpoch: view.Epoch(), Preconditions: kind.pre,
	})
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, h)
	return linearCall{town: view.Snapshot.TownID, handoff: h}
}

// call makes a call and records it with its answer. One without an answer may take effect at any
// later time. While there is no writer the call is repeated.
func (c *linearClient) call(call linearCall) {
	verb, body := call.request()
	call.rivals = c.rivals
	o := porcupine.Operation{ClientId: c.id, Input: call, Call: int64(time.Since(c.start))}
	reply, err := c.request(verb, body)
	for errors.Is(err, nats.ErrNoResponders) {
		time.Sleep(5 * time.Millisecond)
		o.Call = int64(time.Since(c.start))
		reply, err = c.request(verb, body)
	}
	o.Return = int64(time.Since(c.start))
	if err == nil && isRepeat(reply) {
		return // nobody does it
	}
	var view *town.State
	answer := linearAnswer{}
	if err == nil {
		answer, view = call.read(reply)
	}
	if answer == (linearAnswer{}) {
		o.Return = math.MaxInt64
	}
	o.Output = answer
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(append(c.history, o), call.others(o, reply)...)
	if n := len(c.history) % 20; n == 0 || n == 6 { // away for six calls
		c.gameComesOrLeaves()
	}
	if answer.code == "rejected APPROVAL_REQUIRED" {
		c.awaitingApproval = append(c.awaitingApproval, call.handoff)
	}
	if view != nil {
		c.views = append(c.views, *view)
	}
}

// request asks the present writer, and waits for its answer until that writer ends or patience does. Between
// two writers it sends nothing: nats.ErrNoResponders.
func (c *linearClient) request(verb string, body []byte) (*nats.Msg, error) {
	c.mu.Lock()
	ctx, cancel := context.WithTimeout(c.writes, c.patient)
	c.mu.Unlock()
	defer cancel()
	if ctx.Err() != nil {
		return nil, nats.ErrNoResponders
	}
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	return c.nc.RequestWithContext(ctx, wire.Subject(c.world, verb), body)
}

// isRepeat reports whether a reply refuses a handoff whose key has a command that is being applied.
func isRepeat(reply *nats.Msg) bool {
	var failed struct{ Error struct{ Code wire.Code } }
	return reply.Header.Get(wire.RunIDHeader) != "" &&
		reply.Header.Get("Nats-Service-Error-Code") != "" &&
		json.Unmarshal(reply.Data, &failed) == nil && failed.Error.Code == wire.CodeInProgress
}

// others returns the additional calls of a call, by its operation and the reply, nil for none.
func (call linearCall) others(o porcupine.Operation, reply *nats.Msg) []porcupine.Operation {
	switch unanswered := o.Output == (linearAnswer{}); {
	case call.handoff != nil && call.town == linearGame && unanswered:
		call.fails = true
		o.Input = call
	case call.decide != nil && call.decide.submit != nil &&
		(unanswered || o.Output.(linearAnswer).code == "OK"):
		o.Input = linearCall{town: call.town, handoff: call.decide.submit, submitted: true}
		var told struct{ Result json.RawMessage }
		if !unanswered && json.Unmarshal(reply.Data, &told) == nil && told.Result != nil {
			o.Output = linearResult(told.Result)
			break
		}
		o.Output, o.Return = linearAnswer{}, math.MaxInt64
	default:
		return nil
	}
	return []porcupine.Operation{o}
}

func (call linearCall) request() (verb string, body []byte) {
	var request any
	switch {
	case call.decide != nil:
		d := call.decide
		members := map[string]any{"townId": call.town, "handoffId": d.handoffID,
			"handoffHash": d.hash, "actorId": d.person, "reason": "why", "decision": "reject"}
		if d.approve {
			members["decision"], members["submit"] = "approve", d.submit != nil
		}
		verb, request = "approval.decide", members
	case call.cancel != "":
		verb, request = "run.cancel", map[string]any{"runId": call.cancel, "force": call.force}
	case call.handoff != nil:
		body, err := call.handoff.MarshalWire()
		if err != nil {
			panic(err)
		}
		return "handoff", body
	case call.put != nil:
		members := map[string]any{"snapshot": call.put.Snapshot}
		if call.expected != "" {
			members["expectedSnapshotHash"] = call.expected
		}
		if call.town == linearGame {
			members["apply"], members["approval"] = "plugin", []string{}
		}
		verb, request = "town.put", members
	case call.key != "":
		members := map[string]any{"idempotencyKey": call.key}
		if !call.anyTown {
			members["townId"] = call.town
		}
		verb, request = "result.get", members
	default:
		verb, request = "town.get", map[string]any{"townId": call.town}
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	return verb, body
}

// read makes a reply comparable, and returns the state that a town.get or town.put shows. A
// server's own error (503) is no answer.
func (call linearCall) read(reply *nats.Msg) (linearAnswer, *town.State) {
	if status := reply.Header.Get("Nats-Service-Error-Code"); status != "" {
		var failed struct{ Error struct{ Code string } }
		if err := json.Unmarshal(reply.Data, &failed); err != nil || status[0] == '5' ||
			status == "429" {
			return linearAnswer{}, nil
		}
		return call.addRun(linearAnswer{code: failed.Error.Code}, reply), nil
	}
	switch {
	case call.handoff != nil:
		return call.addRun(linearResult(reply.Data), reply), nil
	case call.decide != nil, call.cancel != "":
		return linearAnswer{code: "OK"}, nil
	}
	var body struct {
		Snapshot     json.RawMessage
		SnapshotHash string
		Result       struct{ ResultID string }
	}
	if err := json.Unmarshal(reply.Data, &body); err != nil {
		return linearAnswer{code: err.Error()}, nil
	}
	answer := linearAnswer{code: "OK", state: body.SnapshotHash, resultID: body.Result.ResultID}
	if call.key != "" {
		return answer, nil
	}
	state, err := town.Parse(body.Snapshot, schemas.Limits{})
	if err != nil {
		return linearAnswer{code: err.Error()}, nil
	}
	return answer, &state
}

// addRun adds, for a linearGame handoff, the run that the reply names to the answer.
func (call linearCall) addRun(answer linearAnswer, reply *nats.Msg) linearAnswer {
	if call.handoff != nil && call.town == linearGame {
		answer.run = reply.Header.Get(wire.RunIDHeader)
	}
	return answer
}

func linearResult(data []byte) linearAnswer {
	result, err := handoff.ParseResult(data, schemas.Limits{})
	if err != nil {
		return linearAnswer{code: err.Error()}
	}
	answer := linearAnswer{code: fmt.Sprint(result.Status, " ", result.ReasonCode)}
	switch {
	case result.Status == handoff.Duplicate:
		answer.resultID = *result.Evaluation.DuplicateCheck.DuplicateOf
	case result.WorldState != nil:
		answer.resultID, answer.state = result.ResultID, *result.WorldState.SnapshotHash
	case result.Evaluation.StaleCheck.ActualSnapshotHash != nil:
		answer.state = *result.Evaluation.StaleCheck.ActualSnapshotHash
	}
	return answer
}
