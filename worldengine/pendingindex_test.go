package worldengine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// watchedStore calls stored behind each message that is stored, before the caller goes on.
type watchedStore struct {
	commitlog.Store
	stored func()
}

func (s *watchedStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := s.Store.Publish(ctx, msg)
	s.stored()
	return ack, err
}

// A mark that comes due just when a command is accepted does not come between the command and
// the caller that waits for its answer.
func TestAMarkComesDueWhileACommandIsAccepted(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	e, err := Open(t.Context(), nc, nc, Config{Apply: apply.Plugin})
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	_, err = nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		if c, err := apply.ParseCommand(msg.Data, schemas.Limits{}); err == nil {
			answer := apply.Done(c)
			data, _ := answer.MarshalWire()
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t"})
	_, err = e.Put(t.Context(), state, "")
	require.NoError(t, err)
	// the test has one of its own
	e.indexPending = func(context.Context, string) error { return nil }
	e.log.Store = &watchedStore{e.log.Store, func() {
		e.resumer().Take(t.Context(), commitlog.IndexEntry{Seq: 1, Data: []byte("t"),
			Age: time.Hour})
	}}
	h := talkTo(t, state)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := e.Execute(ctx, h)
	require.NoError(t, err, "there is no answer")
	require.Equal(t, handoff.Executed, answer.Result.Status)
}

// A mark that comes due just when a command's client is answered does not make what the client
// sends then a handoff that had to wait.
func TestAMarkComesDueWhileAClientIsAnswered(t *testing.T) {
	t.Parallel()
	e := openEngine(t, logtest.New(t))
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t"})
	_, err := e.Put(t.Context(), state, "")
	require.NoError(t, err)
	h := talkTo(t, state)
	ends := make(chan Answer, 1)
	require.NoError(t, e.Submit(h, func(Answer, error) {
		assert.NoError(t, e.ensureInTurn("t"))
		assert.NoError(t, e.Submit(h, func(answer Answer, _ error) { ends <- answer }))
	}))
	var answer Answer
	select {
	case answer = <-ends:
	case <-time.After(time.Minute):
		t.Fatal("there is no answer")
	}
	require.Equal(t, handoff.Duplicate, answer.Result.Status)
	page, err := e.Runs().Events(t.Context(), answer.RunID, 0, 1)
	require.NoError(t, err)
	require.Contains(t, string(page.Events[0]), fmt.Sprintf(`"eventType":%q`, runevents.RunStarted))
}

// talkTo returns a handoff for the town "t" in a state, on day 0.
func talkTo(t *testing.T, state town.State) *handoff.Handoff {
	t.Helper()
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: "t", Reason: "Because.",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash, DecisionEpoch: 0,
	})
	require.NoError(t, err)
	return h
}
