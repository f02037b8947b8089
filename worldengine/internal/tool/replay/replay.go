// Package replay sends the handoffs of fixtures, and compares the answers with the expected ones.
package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/jsonfiles"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/tempserver"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

// Case is one fixture to replay.
type Case struct {
	fixture.Fixture
	File   string
	Source []byte   // the content of the file
	Done   *Verdict // nil until it is replayed
}

// Player replays the fixtures of cases.
type Player struct {
	Server      *client.Client // nil for temporary servers, with a new world for each file
	Timeout     time.Duration  // of a request to a temporary server
	Concurrency int            // how many towns, or files without a Server, are replayed at the same time
	// Progress is called with the number of cases that are done, by one goroutine at a time.
	Progress func(done int)

	mu   sync.Mutex // of done
	done int
}

// Play replays cases. It stops at the first error that is no answer, and returns it.
func (p *Player) Play(ctx context.Context, cases []Case) error {
	lanes, working := errgroup.WithContext(ctx)
	lanes.SetLimit(p.Concurrency)
	for _, lane := range p.lanes(cases) {
		lanes.Go(func() error { return p.playLane(working, lane) })
	}
	err := lanes.Wait()
	if err == nil && ctx.Err() != nil {
		err = &client.UnavailableError{Code: "INTERRUPTED", Cause: ctx.Err(), Message: "interrupted"}
	}
	return err
}

// playLane replays the cases of a lane in their order.
func (p *Player) playLane(ctx context.Context, lane []*Case) (err error) {
	fresh := &freshWorlds{timeout: p.Timeout, nth: map[string]int{}}
	defer func() { err = errors.Join(err, fresh.close()) }()
	for _, c := range lane {
		if ctx.Err() != nil {
			return nil
		}
		start := time.Now()
		verdict, err := p.replay(ctx, c, fresh)
		if err != nil {
			return err
		}
		verdict.Took = time.Since(start)
		c.Done = verdict
		p.mu.Lock()
		p.done++
		p.Progress(p.done)
		p.mu.Unlock()
	}
	return nil
}

// lanes groups the cases into lanes: one for each town or, without a Server, each file.
func (p *Player) lanes(cases []Case) (lanes [][]*Case) {
	numbers := map[string]int{}
	for i := range cases {
		key := cases[i].File
		if p.Server != nil {
			key = cases[i].TownID()
		}
		lane, ok := numbers[key]
		if !ok {
			lane = len(lanes)
			numbers[key], lanes = lane, append(lanes, nil)
		}
		lanes[lane] = append(lanes[lane], &cases[i])
	}
	return lanes
}

// replay replays one case. If the snapshot would lower the epoch of its town in a fresh world, the town
// goes on in the next fresh world. An error means that no answer came.
func (p *Player) replay(ctx context.Context, c *Case, fresh *freshWorlds) (*Verdict, error) {
	world, err := p.prepare(ctx, c, fresh)
	for p.Server == nil && client.IsCode(err, wire.CodeEpochRegression) {
		fresh.nth[c.TownID()]++
		world, err = p.prepare(ctx, c, fresh)
	}
	if refused := refusalOf(err); refused != nil {
		return c.failed("", "its snapshot to be put", refused), nil
	}
	if err != nil {
		return nil, err
	}
	return c.send(ctx, world)
}

// refusalOf returns the server's refusal of a request; nil for any other error. That a world is unknown is
// no refusal: no server received the request.
func refusalOf(err error) *client.ReplyError {
	refused, ok := errors.AsType[*client.ReplyError](err)
	if !ok || !refused.Refused() || client.IsCode(err, wire.CodeUnknownWorld) {
		return nil
	}
	return refused
}

// prepare returns the world of a case, and puts the fixture's snapshot there. In a fresh world, the
// fixture decides who applies the town's commands, and which types require approval.
func (p *Player) prepare(
	ctx context.Context, c *Case, fresh *freshWorlds,
) (world *client.Client, err error) {
	world, put := p.Server, client.Put{}
	if world == nil {
		if world, err = fresh.world(ctx, c.TownID()); err != nil {
			return nil, err
		}
		put.Apply, put.Approval = string(apply.Local), []handoff.ProposalType{}
	}
	if c.Snapshot == nil {
		return world, nil
	}
	if c.Game != nil {
		put.Apply = string(apply.Plugin)
	}
	if c.Approval != nil {
		put.Approval = handoff.ProposalTypes()
	}
	_, err = world.PutTownJSON(ctx, c.Snapshot, put)
	if !client.IsCode(err, wire.CodeTownExists) {
		return world, err
	}
	if put.Expected, err = CurrentHash(ctx, world, c.Snapshot); err != nil {
		return nil, err
	}
	if p.Server != nil {
		wanted, err := town.Parse(c.Snapshot, schemas.Limits{})
		if err == nil && wanted.Hash == put.Expected {
			return world, nil
		}
	}
	_, err = world.PutTownJSON(ctx, c.Snapshot, put)
	return world, err
}

// CurrentHash returns the present hash of a snapshot's town, "" if the town does not exist.
func CurrentHash(ctx context.Context, world *client.Client, snapshot jsontext.Value) (string, error) {
	var named struct {
		TownID string `json:"townId"`
	}
	if err := json.Unmarshal(snapshot, &named, jsonfiles.Lenient); err != nil {
		return "", fmt.Errorf("the snapshot cannot be read: %w", err)
	}
	got, err := world.Town(ctx, named.TownID)
	if client.IsCode(err, wire.CodeUnknownTown) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return got.SnapshotHash, nil
}

// send sends the handoff of a case, acts for its game and its person, and judges the answer.
func (c *Case) send(ctx context.Context, world *client.Client) (*Verdict, error) {
	if c.Game != nil {
		game, err := plugin.Serve(world.Conn, plugin.Config{
			World: world.World, Towns: []string{c.TownID()}, Memory: plugin.NewVolatileMemory(),
			Logger: slog.New(slog.DiscardHandler),
			Apply: func(context.Context, *apply.Command) (apply.GameAnswer, error) {
				return *c.Game, nil
			},
		})
		if err != nil {
			return nil, err
		}
		defer func() { _ = game.Close(ctx) }() // the world is temporary
	}
	got, err := world.SendJSON(ctx, c.Handoff)
	if err == nil && c.decides(got.Result) {
		_, err = world.Decide(ctx, client.Decision{
			HandoffID: got.Result.HandoffID, TownID: c.TownID(), Reason: c.Approval.Reason,
			ActorID: c.Approval.ActorID, Decision: c.Approval.Decision,
		})
		if refused := refusalOf(err); refused != nil {
			return c.failed(string(got.Result.Status), "its decision to be taken", refused), nil
		}
		if err == nil {
			got, err = world.SendJSON(ctx, c.Handoff)
		}
	}
	if refused := refusalOf(err); refused != nil {
		return c.judge(fixture.Expectation{Error: refused.Code}, "error "+refused.Error(), refused.Details), nil
	}
	if err != nil {
		return nil, err
	}
	status, reason := got.Result.Status, got.Result.ReasonCode
	return c.judge(fixture.Expectation{
		Status: status, ReasonCode: reason, Result: got.JSON, ResultBytes: string(got.JSON),
	}, fmt.Sprintf("%s %s (run %s)", status, reason, got.RunID), nil), nil
}

// decides reports whether the fixture has a person's decision, and the result requires it.
func (c *Case) decides(result *handoff.Result) bool {
	return c.Approval != nil && c.Approval.Decision != "" &&
		result.ReasonCode == handoff.ReasonApprovalRequired
}

// freshWorlds are the temporary worlds of a file, each on a private server. nth has the index of
// each town's world.
type freshWorlds struct {
	timeout time.Duration
	nth     map[string]int
	worlds  []*client.Client
	closers []func() error // of the servers
}

// world returns the world of a town.
func (w *freshWorlds) world(ctx context.Context, townID string) (*client.Client, error) {
	n := w.nth[townID]
	if n == len(w.worlds) {
		srv, end, err := tempserver.Start(ctx, server.Config{Embedded: embedded.Config{Sync: embedded.SyncInterval}})
		if err != nil {
			return nil, err
		}
		w.closers = append(w.closers, end)
		world, err := client.Connect(srv.URL(), client.Options{Name: "handoffctl"})
		if err != nil {
			return nil, err
		}
		world.Timeout = w.timeout
		w.worlds = append(w.worlds, world)
	}
	return w.worlds[n], nil
}

// close ends the servers.
func (w *freshWorlds) close() (err error) {
	for _, world := range w.worlds {
		world.Close()
	}
	for _, end := range w.closers {
		err = errors.Join(err, end())
	}
	return err
}
