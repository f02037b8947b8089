package worldengine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

const year = 365 * 24 * time.Hour

// setClock is a clock that a test sets.
type setClock struct{ off atomic.Int64 }

func (c *setClock) now() time.Time        { return time.Now().Add(time.Duration(c.off.Load())) }
func (c *setClock) set(off time.Duration) { c.off.Store(int64(off)) }
func (c *setClock) engine(t *testing.T, nc *nats.Conn, deadline time.Duration) *Engine {
	t.Helper()
	policy := apply.Policy{Deadline: deadline, Attempts: 3, Backoff: time.Millisecond,
		Resend: 50 * time.Millisecond}
	e, err := Open(t.Context(), nc, nc, Config{Apply: apply.Plugin, Plugin: policy, Now: c.now})
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

// talkIn makes a town, and a handoff for it.
func talkIn(t *testing.T, e *Engine) *handoff.Handoff {
	t.Helper()
	state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t"})
	_, err := e.Put(t.Context(), state, "")
	require.NoError(t, err)
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: "t", Reason: "Because.",
		Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash, DecisionEpoch: 0,
	})
	require.NoError(t, err)
	return h
}

// A clock that is set while a command is applied makes no attempt longer or shorter: a plugin that
// answers the third attempt is asked for each.
func TestEngine_ClockSetWhileApplying(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"back": -year, "forth": year} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			natstest.Patiently(t, 1500*time.Millisecond, func(deadline time.Duration) string {
				return setWhileApplied(t, step, deadline)
			})
		})
	}
}

func setWhileApplied(t *testing.T, step, deadline time.Duration) (wrong string) {
	nc, clock := natstest.Connect(t), new(setClock)
	var asked [4]atomic.Int64 // by attempt
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			t.Errorf("not a command: %v", err)
			return
		}
		if asked[c.LogicalAttemptID].Add(1) == 1 {
			clock.set(time.Duration(c.LogicalAttemptID) * step)
		}
		if c.LogicalAttemptID == 3 {
			answer := apply.Done(c)
			data, _ := answer.MarshalWire()
			_ = msg.Respond(data)
		}
	})
	require.NoError(t, err)
	e := clock.engine(t, nc, deadline)
	ctx, cancel := context.WithTimeout(t.Context(), deadline+20*time.Second)
	defer cancel()
	answer, err := e.Execute(ctx, talkIn(t, e))
	require.NoError(t, err)
	first, second := asked[1].Load(), asked[2].Load()
	if answer.Result.Status != handoff.Executed || first < 2 || second < 2 {
		return fmt.Sprintf("%s after %d, %d, %d requests; each attempt lasts as long as it has to",
			answer.Result.Status, first, second, asked[3].Load())
	}
	return ""
}

// A clock that is set between two starts neither prolongs a pending command, nor ends it unasked.
func TestEngine_ClockSetBetweenStarts(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"back": -year, "forth": year} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			natstest.Patiently(t, 1500*time.Millisecond, func(deadline time.Duration) string {
				return setBetweenStarts(t, step, deadline)
			})
		})
	}
}

func setBetweenStarts(t *testing.T, step, deadline time.Duration) (wrong string) {
	nc, clock := natstest.Connect(t), new(setClock)
	asked := make(chan *apply.Command, 4096)
	_, err := nc.Subscribe(wire.ApplySubject("main", "*"), func(msg *nats.Msg) {
		if c, err := apply.ParseCommand(msg.Data, schemas.Limits{}); err == nil {
			asked <- c // and never answers
		}
	})
	require.NoError(t, err)
	first := clock.engine(t, nc, deadline)
	h := talkIn(t, first)
	require.NoError(t, first.Submit(h, trace.Context{}, queue.NewReply[Answer]()))
	<-asked
	over, cancel := context.WithCancel(t.Context())
	cancel()
	first.games.Stop(over) // without waiting for an answer
	require.NoError(t, first.Close(t.Context()))
	for len(asked) > 0 {
		<-asked
	}
	clock.set(step)
	second := clock.engine(t, nc, deadline)
	require.Eventually(t, func() bool {
		current, err := second.Town(t.Context(), "t")
		return err == nil && current.PendingRunID == ""
	}, deadline+20*time.Second, 10*time.Millisecond)
	attempts := map[int64]bool{}
	for len(asked) > 0 {
		again := <-asked
		if len(attempts) == 0 {
			require.Positive(t, again.TimeoutMs, "no plugin would begin")
		}
		attempts[again.LogicalAttemptID] = true
	}
	receipt, err := second.Receipt(t.Context(), h.Proposal.TownID, h.IdempotencyKey)
	require.NoError(t, err)
	require.Contains(t, string(receipt.Result), apply.ReasonPluginTimeout)
	if len(attempts) != 3 {
		return fmt.Sprint("a plugin is asked for each of three attempts, and was for: ", attempts)
	}
	return ""
}
