package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// TestCluster is the short form of everything: outcomes, reads and races on replicated streams, and
// the engine that serves is killed under load.
func TestCluster(t *testing.T) {
	w, each, towns, patience := startWorld(t, false), size, 6, 500*time.Millisecond
	if *rounds > 0 {
		each, towns, patience = 12, drivenTowns, requestTimeout
	}
	state := w.create("market")
	accepted := w.outcomes(&state, each)
	accepted += w.races(&state, each)
	w.guards()

	w.drive(towns, patience)
	from := time.Now()
	w.engines[w.writer()].kill()
	w.hammer.waitAnswers(5, everywhere...)
	report(t, "an engine killed", []gap{w.hammer.gapSince(from, everywhere...)})
	w.hammer.verify(w.clients[0], accepted)
}

// create makes a town that has something to fail at.
func (w *world) create(id string) town.State {
	w.t.Helper()
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: id,
		SideQuests: []town.SideQuest{}, Projects: []town.Project{
			{ID: "bridge", Name: "Bridge", Progress: 0.4, Status: town.Blocked},
		}})
	var put struct{ SnapshotHash string }
	ask(w.t, w.clients[0], "town.put", map[string]any{"snapshot": json.RawMessage(state.Canonical)},
		&put)
	require.Equal(w.t, state.Hash, put.SnapshotHash)
	return state
}

// sent is the answer to a handoff.
type sent struct {
	run    string
	result *handoff.Result
}

// send sends a handoff through a node. It sends it again while the engine
// does not know all keys: then it has judged nothing.
func (w *world) send(node int, body []byte) sent {
	w.t.Helper()
	answer, err := w.trySend(node, body)
	require.NoError(w.t, err)
	return answer
}

// trySend is send for another goroutine than that of the test.
func (w *world) trySend(node int, body []byte) (sent, error) {
	var reply *nats.Msg
	for until := time.Now().Add(time.Minute); ; {
		var err error
		reply, err = w.clients[node].Request(wire.Subject(wire.DefaultWorld, "handoff"), body,
			30*time.Second)
		if err != nil {
			return sent{}, err
		}
		if !bytes.Contains(reply.Data, []byte(wire.CodeIndexBehind)) ||
			time.Now().After(until) {
			break
		}
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return sent{}, fmt.Errorf("%s: %s", code, reply.Data)
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	return sent{reply.Header.Get(wire.RunIDHeader), result}, err
}

// propose makes a handoff; actor tells one from another.
func (w *world) propose(at town.State, kind handoff.ProposalType, argument, actor string) []byte {
	w.t.Helper()
	made, err := handoff.New(handoff.Proposal{
		Type: kind, ActorID: actor, TownID: at.Snapshot.TownID, Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
	})
	require.NoError(w.t, err)
	encoded, err := made.MarshalWire()
	require.NoError(w.t, err)
	return encoded
}

// outcomes sends each handoff through one node and looks at what it did through the others. It
// returns how many were accepted.
func (w *world) outcomes(state *town.State, executed int) int {
	w.t.Helper()
	failing := w.propose(*state, handoff.AdvanceProject, "bridge", "mayor-1")
	require.Equal(w.t, handoff.Failed, w.send(0, failing).result.Status)
	require.Equal(w.t, handoff.Duplicate, w.send(1, failing).result.Status)

	for k := range executed {
		talk := w.propose(*state, handoff.TalkToTownsfolk, "casual", "mayor-1")
		answer := w.send(k%size, talk)
		require.Equal(w.t, handoff.Executed, answer.result.Status)
		// At once, through the other nodes.
		var again sent
		var againErr error
		var sending sync.WaitGroup
		sending.Go(func() { again, againErr = w.trySend((k+1)%size, talk) })
		old := *state
		*state = w.after(old, talk)
		require.Equal(w.t, state.Hash, *answer.result.WorldState.SnapshotHash)
		for node := range size {
			w.reads((k+2+node)%size, answer.run, *state)
		}
		sending.Wait()
		require.NoError(w.t, againErr)
		require.Equal(w.t, handoff.Duplicate, again.result.Status)
		late := w.propose(old, handoff.TalkToTownsfolk, "casual", "mayor-2")
		require.Equal(w.t, handoff.Stale, w.send((k+2)%size, late).result.Status)
	}
	unknown := *state
	snapshot := *state.Snapshot
	snapshot.TownID, unknown.Snapshot = "nowhere", &snapshot
	stranger := w.propose(unknown, handoff.TalkToTownsfolk, "casual", "mayor-1")
	require.Equal(w.t, handoff.Rejected, w.send(1, stranger).result.Status)
	return executed + 1
}

// after is what the rules make of a handoff.
func (w *world) after(state town.State, body []byte) town.State {
	w.t.Helper()
	h, err := handoff.Parse(body, schemas.Limits{})
	require.NoError(w.t, err)
	after, reason := town.DefaultRules().Apply(state.Snapshot, &h.Proposal)
	require.Empty(w.t, reason)
	return after
}

// reads reads through a node what has just been answered: nothing of it may be behind.
func (w *world) reads(node int, run string, state town.State) {
	w.t.Helper()
	var page struct{ Events []runevents.Record }
	ask(w.t, w.clients[node], "run.events", map[string]string{"runId": run}, &page)
	require.NotEmpty(w.t, page.Events)
	require.Equal(w.t, runevents.RunCompleted, page.Events[len(page.Events)-1].EventType)
	var at struct{ SnapshotHash string }
	ask(w.t, w.clients[node], "town.get", map[string]string{"townId": state.Snapshot.TownID}, &at)
	require.Equal(w.t, state.Hash, at.SnapshotHash, "read through node %d", node+1)
}

// races sends three handoffs about one state at the same moment, one through each node: one is
// executed, the others are judged again on what it left.
func (w *world) races(state *town.State, n int) int {
	w.t.Helper()
	for range n {
		var bodies [size][]byte
		var answers [size]sent
		var wg sync.WaitGroup
		for node := range size {
			bodies[node] = w.propose(*state, handoff.TalkToTownsfolk, "casual",
				"mayor-"+strconv.Itoa(node))
			wg.Go(func() { answers[node] = w.send(node, bodies[node]) })
		}
		wg.Wait()
		won := -1
		for node, a := range answers {
			if a.result.Status == handoff.Executed {
				require.Equal(w.t, -1, won, "two were executed on one state")
				won = node
				continue
			}
			require.Equal(w.t, handoff.Stale, a.result.Status)
		}
		require.NotEqual(w.t, -1, won)
		*state = w.after(*state, bodies[won])
	}
	return n
}

// guards sees both answers that a replicated stream has for a lost race: the guard is behind what
// is stored, or behind what is on its way.
func (w *world) guards() {
	w.t.Helper()
	js, err := jetstream.New(w.clients[0])
	require.NoError(w.t, err)
	_, err = js.CreateStream(w.t.Context(), jetstream.StreamConfig{
		Name: "GUARDS", Subjects: []string{"guards"}, Replicas: size,
	})
	require.NoError(w.t, err)
	seen := map[jetstream.ErrorCode]int{}
	eventually(w.t, 20*time.Second, "both answers to a lost race", func(ctx context.Context) error {
		for _, err := range publishAtOnce(ctx, js, 16) {
			var api *jetstream.APIError
			require.ErrorAs(w.t, err, &api)
			require.True(w.t, commitlog.IsWrongLastSequence(err), "%v", err)
			seen[api.ErrorCode]++
		}
		if seen[jetstream.JSErrCodeStreamWrongLastSequence] == 0 ||
			seen[jetstream.JSErrCodeStreamWrongLastSequenceConstant] == 0 {
			return errors.New("only one of them")
		}
		return nil
	})
	require.NoError(w.t, js.DeleteStream(w.t.Context(), "GUARDS"))
	w.t.Logf("lost races were answered with %v", seen)
}

// publishAtOnce publishes messages with one guard, and returns the errors of those that it kept
// out.
func publishAtOnce(ctx context.Context, js jetstream.JetStream, n int) []error {
	s, err := js.Stream(ctx, "GUARDS")
	if err != nil {
		return nil
	}
	guard := strconv.FormatUint(s.CachedInfo().State.LastSeq, 10)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, errs[i] = js.PublishMsg(ctx, &nats.Msg{Subject: "guards",
				Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {guard}}})
		})
	}
	wg.Wait()
	_, err = js.PublishMsg(ctx, &nats.Msg{Subject: "guards", // when nothing is on its way
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {guard}}})
	errs = append(errs, err)
	var lost []error
	for _, err := range errs {
		if err != nil {
			lost = append(lost, err)
		}
	}
	return lost
}
