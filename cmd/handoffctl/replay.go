package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// replayCommand sends the handoffs of fixtures.
type replayCommand struct {
	Paths       []string `arg:"" name:"path" help:"Files, and directories whose *.json are read in the order of their names; - for standard input."`
	Concurrency int      `help:"How many towns are replayed at once. The handoffs of one town stay in their order." default:"1"`
}

// Help is the command's long help.
func (replayCommand) Help() string {
	return `A file holds one fixture or an array of them. A fixture is a handoff by itself, or
{"handoff": …, "snapshot": …, "expect": {"status", "reasonCode", "result", "error"}, "name": …}, all
but the handoff optional, other members ignored.

With a snapshot the town is put first: created, or its state replaced, which fails the fixture where
the town's day would be lowered. Of "expect" only what is given is compared; "error" is the machine
code of an error reply. A handoff that gets an error reply that is not expected fails. Prints how
many ended in each status and every failure, and exits 1 when there is one. With --concurrency above
1 a fixture takes its turn among those of its handoff's town, and the towns mix.

Example:

    handoffctl replay fixtures/ --concurrency 8`
}

// Run replays the fixtures.
func (c *replayCommand) Run(ctx context.Context, a *app) error {
	if c.Concurrency < 1 {
		return usagef("--concurrency must be at least 1, not %d", c.Concurrency)
	}
	fixtures, err := loadFixtures(a, c.Paths)
	if err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	player := &player{server: server, fixtures: fixtures, progress: newProgress(a.err, len(fixtures))}
	player.done = make([]*replayed, len(fixtures))
	start := time.Now()
	stopped := player.play(ctx, c.Concurrency)
	player.progress.end()
	return errors.Join(stopped, a.printReplay(player.done, time.Since(start), stopped))
}

// player replays fixtures.
type player struct {
	server   *client.Client
	fixtures []fixture
	progress *progress
	done     []*replayed // by fixture; nil where it was not replayed
}

// play replays the fixtures, with so many towns at once. It stops at the first error that is not
// an answer, and returns it.
func (p *player) play(ctx context.Context, concurrency int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	lanes := make(chan []int, len(p.fixtures))
	for _, lane := range p.lanes(concurrency) {
		lanes <- lane
	}
	close(lanes)
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for lane := range lanes {
				for _, i := range lane {
					if context.Cause(ctx) != nil {
						return
					}
					done, err := p.replay(ctx, &p.fixtures[i])
					if err != nil {
						stop(err)
						return
					}
					p.done[i] = &done
					p.progress.step()
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); errors.Is(err, context.Canceled) {
		return &client.UnavailableError{Code: "INTERRUPTED", Message: "interrupted", Cause: err}
	} else if err != nil {
		return err
	}
	return nil
}

// lanes returns the indexes of the fixtures, each lane to be replayed in its order: all of them
// where nothing happens at once, else those of each town.
func (p *player) lanes(concurrency int) [][]int {
	var lanes [][]int
	of := map[string]int{}
	for i := range p.fixtures {
		key := p.fixtures[i].town
		if concurrency == 1 {
			key = ""
		}
		lane, ok := of[key]
		if !ok {
			lane = len(lanes)
			of[key], lanes = lane, append(lanes, nil)
		}
		lanes[lane] = append(lanes[lane], i)
	}
	return slices.Clip(lanes)
}

// replay replays one fixture. An error means that no answer came.
func (p *player) replay(ctx context.Context, f *fixture) (replayed, error) {
	var refused *client.ReplyError
	if f.snapshot != nil {
		err := p.prepare(ctx, f)
		if errors.As(err, &refused) && refused.Refused() {
			return replayed{outcome: refusedOutcome, failure: &mismatch{
				Fixture: f.label, Expected: "its snapshot to be put", Got: "error " + refused.Error(),
			}}, nil
		}
		if err != nil {
			return replayed{}, err
		}
	}
	got, err := sendHandoff(ctx, p.server, f.handoff)
	if errors.As(err, &refused) && refused.Refused() {
		return judgeRefusal(f, refused), nil
	}
	if err != nil {
		return replayed{}, err
	}
	return judgeResult(f, got), nil
}

// prepare makes the fixture's snapshot the state of its town.
func (p *player) prepare(ctx context.Context, f *fixture) error {
	_, _, err := putTown(ctx, p.server, f.snapshot, "", "")
	var refused *client.ReplyError
	if !errors.As(err, &refused) || refused.Code != "TOWN_EXISTS" {
		return err
	}
	current, err := currentHash(ctx, p.server, f.snapshot)
	if err != nil {
		return err
	}
	if wanted, err := town.Parse(f.snapshot, schemas.Limits{}); err == nil && wanted.Hash == current {
		return nil
	}
	_, _, err = putTown(ctx, p.server, f.snapshot, current, "")
	return err
}
