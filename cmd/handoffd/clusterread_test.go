package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"syscall"
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
	w, each, towns, patience := startWorld(t), size, 6, 500*time.Millisecond
	if *clusterRounds > 0 {
		each, towns, patience = 12, drivenByLong, longPatience
	}
	m := &market{clusterWorld: w}
	m.create()
	m.outcomes(each)
	m.races(each)
	w.guards()

	w.drive(towns, patience)
	from := time.Now()
	w.engines[w.writer()].end(syscall.SIGKILL)
	w.hammer.waitEach(5, everywhere...)
	logGaps(t, "an engine killed", []gap{w.hammer.gapSince(from, everywhere...)})
	w.finish(m.accepted)
}

// market is a town of a cluster that is looked at through all nodes.
type market struct {
	*clusterWorld
	state    town.State
	accepted int
}

// create makes the town, which has something to fail at.
func (m *market) create() {
	m.t.Helper()
	m.state = town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "market",
		SideQuests: []town.SideQuest{}, Projects: []town.Project{
			{ID: "bridge", Name: "Bridge", Progress: 0.4, Status: town.Blocked},
		}})
	put := ask[townNow](m.t, m.clients[0], wire.TownPut,
		members{"snapshot": json.RawMessage(m.state.Canonical)})
	require.Equal(m.t, m.state.Hash, put.SnapshotHash)
}

// send sends a handoff through a node until the engine knows all keys.
func (m *market) send(node int, body []byte) *handoff.Result {
	return insist(m.t, m.clients[node], body, time.Minute)
}

// talk returns a handoff about a state; actor tells one from another.
func (m *market) talk(at town.State, actor string) []byte {
	return m.propose(at, handoff.TalkToTownsfolk, "casual", actor)
}

func (m *market) propose(at town.State, kind handoff.ProposalType, argument, actor string) []byte {
	made, err := handoff.New(handoff.Proposal{
		Type: kind, ActorID: actor, TownID: at.Snapshot.TownID, Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(),
	})
	require.NoError(m.t, err)
	encoded, err := made.MarshalWire()
	require.NoError(m.t, err)
	return encoded
}

// outcomes sends each handoff through one node and looks at its effect through the others.
func (m *market) outcomes(executed int) {
	m.t.Helper()
	failing := m.propose(m.state, handoff.AdvanceProject, "bridge", "mayor-1")
	require.Equal(m.t, handoff.Failed, m.send(0, failing).Status)
	require.Equal(m.t, handoff.Duplicate, m.send(1, failing).Status)
	m.accepted++
	for k := range executed {
		old, body := m.state, m.talk(m.state, "mayor-1")
		require.Equal(m.t, handoff.Executed, m.send(k%size, body).Status)
		m.executed(body)
		var again *handoff.Result // at once, through another node
		var sending sync.WaitGroup
		sending.Go(func() { again = m.send((k+1)%size, body) })
		for node := range size {
			m.reads((k+2+node)%size, body)
		}
		sending.Wait()
		require.Equal(m.t, handoff.Duplicate, again.Status)
		require.Equal(m.t, handoff.Stale, m.send((k+2)%size, m.talk(old, "mayor-2")).Status)
	}
	snapshot := *m.state.Snapshot
	snapshot.TownID = "nowhere"
	require.Equal(m.t, handoff.Rejected, m.send(1, m.talk(town.NewState(&snapshot), "mayor-1")).Status)
}

// executed makes the state the one after a handoff.
func (m *market) executed(body []byte) {
	m.state = (&driven{state: m.state}).after(body)
	m.accepted++
}

// reads reads through a node the effect of a handoff that has just been answered: nothing of it may
// be behind.
func (m *market) reads(node int, body []byte) {
	m.t.Helper()
	h, err := handoff.Parse(body, schemas.Limits{})
	require.NoError(m.t, err)
	nc := m.clients[node]
	page := ask[struct{ Events []runevents.Record }](m.t, nc, wire.RunEvents,
		members{"runId": receiptOf(m.t, nc, h.IdempotencyKey).RunID})
	require.NotEmpty(m.t, page.Events)
	require.Equal(m.t, runevents.RunCompleted, page.Events[len(page.Events)-1].EventType)
	require.Equal(m.t, m.state.Hash, townOf(m.t, nc, h.Proposal.TownID).SnapshotHash,
		"read through node %d", node+1)
}

// races sends three handoffs about one state at the same moment, one through each node: one is
// executed, the others are judged again on the state after it.
func (m *market) races(n int) {
	m.t.Helper()
	for range n {
		var bodies [size][]byte
		var results [size]*handoff.Result
		var sending sync.WaitGroup
		for node := range size {
			bodies[node] = m.talk(m.state, "mayor-"+strconv.Itoa(node))
			sending.Go(func() { results[node] = m.send(node, bodies[node]) })
		}
		sending.Wait()
		won := -1
		for node, r := range results {
			if r.Status == handoff.Executed {
				require.Equal(m.t, -1, won, "two were executed on one state")
				won = node
				continue
			}
			require.Equal(m.t, handoff.Stale, r.Status)
		}
		require.NotEqual(m.t, -1, won)
		m.executed(bodies[won])
	}
}

// guards sees both answers that a replicated stream has for a lost race: the guard is behind a
// stored message, or behind one on its way.
func (w *clusterWorld) guards() {
	w.t.Helper()
	js, err := jetstream.New(w.clients[0])
	require.NoError(w.t, err)
	stream, err := js.CreateStream(w.t.Context(), jetstream.StreamConfig{
		Name: "GUARDS", Subjects: []string{"guards"}, Replicas: size,
	})
	require.NoError(w.t, err)
	seen := map[jetstream.ErrorCode]int{}
	eventually(w.t, 20*time.Second, "both answers to a lost race", func(ctx context.Context) error {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		publish := func() error {
			_, err := js.PublishMsg(ctx, &nats.Msg{Subject: "guards", Header: nats.Header{
				jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(info.State.LastSeq, 10)}}})
			return err
		}
		errs := make([]error, 16)
		var publishing sync.WaitGroup
		for i := range errs {
			publishing.Go(func() { errs[i] = publish() })
		}
		publishing.Wait()
		for _, err := range append(errs, publish()) { // the last when nothing is on its way
			if err == nil {
				continue
			}
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
