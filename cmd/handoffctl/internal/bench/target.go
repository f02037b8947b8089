package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// target is a town that is driven: by one worker, one handoff after the other.
type target struct {
	id    string
	chain *chain
	steps []step // made and not yet sent
	// after is the member of the last answer that named a state; first is the hash before any.
	after []byte
	first string
	last  []byte // the last answer
	// lost says that an answer was wrong, so that the state is not known any more.
	lost bool
}

// refill makes steps until n are ready.
func (t *target) refill(n int) error {
	if len(t.steps) >= n {
		return nil
	}
	steps := make([]step, len(t.steps), n)
	copy(steps, t.steps)
	for len(steps) < n {
		made, err := t.chain.next()
		if err != nil {
			return err
		}
		steps = append(steps, made)
	}
	t.steps = steps
	return nil
}

// prepare makes steps for all towns until each has n ready, on all processors.
func prepare(ctx context.Context, targets []*target, n int) error {
	todo := make(chan *target, len(targets))
	for _, t := range targets {
		todo <- t
	}
	close(todo)
	failures := make([]error, runtime.GOMAXPROCS(0))
	var makers sync.WaitGroup
	for i := range failures {
		makers.Go(func() {
			for t := range todo {
				if failures[i] = errors.Join(ctx.Err(), t.refill(n)); failures[i] != nil {
					return
				}
			}
		})
	}
	makers.Wait()
	return errors.Join(failures...)
}

// createTowns makes the towns of the run. Their ids are new in any world, so that a run does not
// meet what another left.
func createTowns(
	ctx context.Context, server *client.Client, config *Config, run string,
) ([]*target, error) {
	targets := make([]*target, config.Towns)
	for i := range targets {
		t := &target{id: fmt.Sprintf("bench-%s-%d", run, i)}
		t.chain = newChain(t.id, config.Mix, i)
		t.first = t.chain.state.Hash
		body, err := json.Marshal(struct {
			Snapshot *town.Snapshot `json:"snapshot"`
		}{t.chain.state.Snapshot})
		if err != nil {
			return nil, fmt.Errorf("bench: a town cannot be written: %w", err)
		}
		if _, err := server.Request(ctx, wire.TownPut, body); err != nil {
			return nil, fmt.Errorf("bench: town %s: %w", t.id, err)
		}
		targets[i] = t
	}
	return targets, nil
}

// check compares the state of the town as the server has it with what the answers said, and
// verifies the last answer in full. It returns what is wrong, or "".
func (t *target) check(ctx context.Context, server *client.Client) (string, error) {
	if t.lost {
		return "", nil // has been counted
	}
	if t.last != nil {
		if _, err := handoff.ParseResult(t.last, schemas.Limits{}); err != nil {
			return fmt.Sprintf("town %s: the last answer is not a valid result: %v", t.id, err), nil
		}
	}
	body, err := json.Marshal(map[string]string{"townId": t.id})
	if err != nil {
		return "", fmt.Errorf("bench: town %s: %w", t.id, err)
	}
	msg, err := server.Request(ctx, wire.TownGet, body)
	if err != nil {
		return "", fmt.Errorf("bench: town %s: %w", t.id, err)
	}
	var got struct {
		SnapshotHash string `json:"snapshotHash"`
	}
	if err := json.Unmarshal(msg.Data, &got); err != nil {
		return "", fmt.Errorf("bench: town %s: %w", t.id, err)
	}
	want := t.after
	if want == nil {
		want = afterMember(t.first)
	}
	if string(afterMember(got.SnapshotHash)) != string(want) {
		return fmt.Sprintf("town %s is in the state %s, not the one predicted", t.id,
				got.SnapshotHash),
			nil
	}
	return "", nil
}
