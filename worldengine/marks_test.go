package worldengine

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
)

// watchedStore calls stored behind each message that is stored, before whoever stored it goes on.
type watchedStore struct {
	logStore
	stored func()
}

func (s *watchedStore) publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := s.logStore.publish(ctx, msg)
	s.stored()
	return ack, err
}

// A mark that comes due just when a command is accepted does not come between the command and whoever
// waits for its answer.
func TestAMarkComesDueWhileACommandIsAccepted(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	e, err := Open(t.Context(), nc, nc, Config{Apply: ApplyPlugin})
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	_, err = nc.Subscribe(ApplySubject("main", "*"), func(msg *nats.Msg) {
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
	e.mark = func(context.Context, string) error { return nil } // the test has one of its own
	e.log.store = &watchedStore{e.log.store, func() {
		e.lookAt(t.Context(), map[string]mark{"t": {seq: 1, seen: time.Now()}})
	}}
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: "t", Reason: "Because.",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash, DecisionEpoch: 0,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := e.Execute(ctx, h)
	require.NoError(t, err, "there is no answer")
	require.Equal(t, handoff.Executed, answer.Result.Status)
}
