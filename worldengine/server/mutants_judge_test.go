package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// step sends one mutant, or now and then the valid request itself, and judges the answer.
func (h *hostile) step() {
	h.t.Helper()
	v := pick(h.m.g, h.requests())
	root := nodeOf(h.t, bodyOf(h.t, v.body))
	data, how := []byte(root.String()), "unchanged"
	if h.m.g.IntN(20) > 0 {
		data, how = h.m.mutant(v.request, root)
		// more is refused by the client's own library
		data = data[:min(len(data), server.LargestRequest)]
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
		h.begin()
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
	require.Contains(h.t, []int{400, 404, 409, 413}, f.Status, "%+v", f)
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
	if mayBe && strict == nil && f.Status == 400 &&
		!slices.Contains([]string{"handoff", "town.put", "town.patch", "run.append"}, v.verb) {
		require.NotEqual(h.t, "", f.Details[0].Path,
			"the schema accepts it, so there is a place that is wrong: %+v", f)
		if f.Code != "INVALID_CURSOR" { // no schema knows how far the log is
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
	listed := map[string]summary{}
	for _, town := range h.list() {
		listed[town.TownID] = town
	}
	modelled := map[string]summary{}
	for id, at := range h.towns {
		modelled[id] = summary{id, at.SnapshotHash, at.DecisionEpoch, at.Revision}
	}
	require.Equal(h.t, modelled, listed)
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
