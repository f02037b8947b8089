package handoffctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

// replayCommand sends the handoffs of fixtures.
type replayCommand struct {
	Paths       []string   `arg:"" name:"path" help:"Files, and directories to search for *.json, *.jsonl and *.ndjson that are not hidden; - for standard input."`
	Concurrency positive   `help:"Number of towns, or with --fresh of files, to replay at the same time. The handoffs of one town stay in their order." default:"1"`
	Strict      bool       `help:"Refuse fixtures that expect nothing before anything is sent."`
	Fresh       bool       `help:"Replay against temporary servers, with a new world for each file."`
	Update      bool       `help:"Write the answers into the fixtures that failed or expect nothing, and show the differences." xor:"report"`
	JUnit       outputFile `name:"junit" help:"Also write a JUnit report to this file." placeholder:"FILE" xor:"report"`
}

func (replayCommand) Help() string {
	return `A file has one fixture, an array of fixtures, or one after another (JSON Lines). A
fixture is a handoff, or {"handoff": …, "snapshot": …, "expect": {"status", "reasonCode", "result",
"resultBytes", "error"}, "game": …, "approval": …, "name": …, "comment": …}. Only the handoff is
required; other members are refused.

replay first puts the snapshot, if there is one, as the state of the town. The server refuses it if
it would lower the town's day; then the fixture fails. "expect" is compared member by member:
"result" as JSON, "resultBytes" byte for byte; "error" is the machine code of an error reply. An
error reply that the fixture does not expect is a failure. A fixture that expects nothing is sent
and counted as unchecked. replay prints the number of handoffs for each status, and every failure,
and exits 1 if there is one.

"game" is a command-applied.v1 such as {"status": "applied", "snapshot": …} or {"status": "refused",
"reasonCode": …}: replay answers the command with it in place of the town's game. "approval" is
{"decision": "approve" or "reject", "actorId": …, "reason": …}: the proposal requires a person's
approval, and replay decides and sends the handoff again; without a decision it does neither. Both
require a snapshot and --fresh.

With --update the answer becomes the expectation of each fixture that failed or expects nothing: the
members that its "expect" has, or else status, reasonCode and resultBytes. replay shows the
difference and rewrites the file with one fixture on each line. A snapshot that could not be put
stays a failure. Nothing is written if the replay was cut short.

With --fresh replay needs no server, and every file begins with an empty world. If a snapshot would
lower the day of its town, the town goes on in another empty world.

Examples:

    handoffctl replay fixtures/ --fresh --strict --junit report.xml
    handoffctl replay fixtures/ --fresh --update`
}

func (c *replayCommand) Run(ctx context.Context, a *app) error {
	fixtures, err := c.load(a)
	if err != nil {
		return err
	}
	p := &player{app: a, fixtures: fixtures, line: a.progressLine()}
	if !c.Fresh {
		if p.server, err = a.connect(); err != nil {
			return err
		}
	}
	start := time.Now()
	stopped := p.play(ctx, int(c.Concurrency))
	took := time.Since(start)
	p.line.clear()
	if err := writeJUnit(c.JUnit, junitSuites(fixtures)...); err != nil {
		return err
	}
	var updates []update
	if c.Update && stopped == nil {
		if updates, err = updateFixtures(fixtures); err != nil {
			return err
		}
	}
	return errors.Join(stopped, a.printReplay(fixtures, took, updates, stopped))
}

// load checks the command line, and reads the fixtures.
func (c *replayCommand) load(a *app) ([]fixture, error) {
	files, err := filesIn(c.Paths)
	if err != nil {
		return nil, err
	}
	if c.Update && slices.Contains(files, "-") {
		return nil, usagef("--update writes into the files of the fixtures: name files, not -")
	}
	fixtures, err := loadFixtures(a, files)
	if err != nil {
		return nil, err
	}
	for i := range fixtures {
		switch f := &fixtures[i]; {
		case c.Strict && !f.Expect.compares():
			return nil, usagef("%s expects nothing, and --strict refuses that", f.label)
		case !c.Fresh && f.setsOutcome():
			return nil, usagef("%s has an outcome of a game or a person: replay it with --fresh",
				f.label)
		}
	}
	return fixtures, nil
}

// player replays fixtures.
type player struct {
	app      *app
	server   *client.Client // nil with --fresh
	fixtures []fixture

	mu    sync.Mutex // of line and count
	line  *progressLine
	count int // of fixtures that were replayed
}

// play replays the fixtures, with concurrency lanes at once. It stops at the first error that is
// not an answer, and returns it.
func (p *player) play(ctx context.Context, concurrency int) error {
	lanes, working := errgroup.WithContext(ctx)
	lanes.SetLimit(concurrency)
	for _, lane := range p.lanes() {
		lanes.Go(func() error { return p.playLane(working, lane) })
	}
	err := lanes.Wait()
	if err == nil && ctx.Err() != nil {
		err = unavailablef("INTERRUPTED", ctx.Err(), "interrupted")
	}
	return err
}

// playLane replays the fixtures of a lane in their order.
func (p *player) playLane(ctx context.Context, lane []int) (err error) {
	fresh := &freshWorlds{timeout: p.app.flags.Timeout, nth: map[string]int{}}
	defer func() { err = errors.Join(err, fresh.close()) }()
	for _, i := range lane {
		if ctx.Err() != nil {
			return nil
		}
		start := time.Now()
		done, err := p.replay(ctx, &p.fixtures[i], fresh)
		if err != nil {
			return err
		}
		done.took = time.Since(start)
		p.fixtures[i].done = done
		p.step()
	}
	return nil
}

// lanes groups the indexes of the fixtures into lanes: one for each town or, with --fresh, each
// file.
func (p *player) lanes() [][]int {
	var lanes [][]int
	numbers := map[string]int{}
	for i := range p.fixtures {
		key := p.fixtures[i].town
		if p.server == nil {
			key = p.fixtures[i].file
		}
		lane, ok := numbers[key]
		if !ok {
			lane = len(lanes)
			numbers[key], lanes = lane, append(lanes, nil)
		}
		lanes[lane] = append(lanes[lane], i)
	}
	return lanes
}

// progressEvery is how many fixtures pass between two lines if there is no terminal.
const progressEvery = 1000

// step counts a fixture, and shows how far the replay is.
func (p *player) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	p.line.show(false, "%d of %d replayed", p.count, len(p.fixtures))
	if p.line.w == nil && p.count%progressEvery == 0 {
		fmt.Fprintf(p.app.err, "%d of %d replayed\n", p.count, len(p.fixtures))
	}
}

// replay replays one fixture. If the snapshot would lower the epoch of its town in a fresh world,
// the town goes on in the next fresh world. An error means that no answer came.
func (p *player) replay(ctx context.Context, f *fixture, fresh *freshWorlds) (*replayed, error) {
	world, err := p.prepare(ctx, f, fresh)
	for p.server == nil && client.IsCode(err, wire.CodeEpochRegression) {
		fresh.nth[f.town]++
		world, err = p.prepare(ctx, f, fresh)
	}
	if refused := refusalOf(err); refused != nil {
		return &replayed{failure: &mismatch{
			Fixture: f.label, Expected: "its snapshot to be put", Got: "error " + refused.Error(),
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	got, err := f.send(ctx, world)
	if undecided, ok := errors.AsType[*undecidedError](err); ok {
		return &replayed{outcome: string(undecided.first.Result.Status), failure: &mismatch{
			Fixture: f.label, Expected: "its decision to be taken", Got: "error " + undecided.refused.Error(),
		}}, nil
	}
	if refused := refusalOf(err); refused != nil {
		return f.judge(&expectation{Error: refused.Code}, "error "+refused.Error(),
			linesOf(refused.Details)), nil
	}
	if err != nil {
		return nil, err
	}
	status, reason := got.Result.Status, got.Result.ReasonCode
	return f.judge(&expectation{
		Status: status, ReasonCode: reason, Result: got.JSON, ResultBytes: string(got.JSON),
	}, fmt.Sprintf("%s %s (run %s)", status, reason, got.RunID), nil), nil
}

// refusalOf returns the server's refusal of a request; nil for any other error. That a world is unknown is
// no refusal: no server took the request.
func refusalOf(err error) *client.ReplyError {
	refused, ok := errors.AsType[*client.ReplyError](err)
	if !ok || !refused.Refused() || client.IsCode(err, wire.CodeUnknownWorld) {
		return nil
	}
	return refused
}

// prepare returns the world of a fixture, and puts the fixture's snapshot there. In a fresh world,
// the fixture decides who applies the town's commands, and which types require approval.
func (p *player) prepare(
	ctx context.Context, f *fixture, fresh *freshWorlds,
) (world *client.Client, err error) {
	world, put := p.server, client.Put{}
	if world == nil {
		if world, err = fresh.world(ctx, f.town); err != nil {
			return nil, err
		}
		put.Apply, put.Approval = string(apply.Local), []handoff.ProposalType{}
	}
	if f.Snapshot == nil {
		return world, nil
	}
	if f.Game != nil {
		put.Apply = string(apply.Plugin)
	}
	if f.Approval != nil {
		put.Approval = handoff.ProposalTypes()
	}
	_, err = world.PutTownJSON(ctx, f.Snapshot, put)
	if !client.IsCode(err, wire.CodeTownExists) {
		return world, err
	}
	if put.Expected, err = currentHash(ctx, world, f.Snapshot); err != nil {
		return nil, err
	}
	if p.server != nil {
		wanted, err := town.Parse(f.Snapshot, schemas.Limits{})
		if err == nil && wanted.Hash == put.Expected {
			return world, nil
		}
	}
	_, err = world.PutTownJSON(ctx, f.Snapshot, put)
	return world, err
}

// send sends the fixture's handoff, and acts for its game and its person.
func (f *fixture) send(ctx context.Context, world *client.Client) (*client.Outcome, error) {
	if f.Game != nil {
		game, err := plugin.Serve(world.Conn, plugin.Config{
			World: world.World, Towns: []string{f.town}, Memory: plugin.NewVolatileMemory(),
			Logger: slog.New(slog.DiscardHandler),
			Apply: func(context.Context, *apply.Command) (apply.Answer, error) {
				return *f.Game, nil
			},
		})
		if err != nil {
			return nil, err
		}
		defer func() { _ = game.Close(ctx) }() // the world is temporary
	}
	got, err := world.SendJSON(ctx, f.Handoff)
	if err != nil || f.Approval == nil || f.Approval.Decision == "" ||
		got.Result.ReasonCode != handoff.ReasonApprovalRequired {
		return got, err
	}
	_, err = world.Decide(ctx, client.Decision{
		HandoffID: got.Result.HandoffID, TownID: f.town, Reason: f.Approval.Reason,
		ActorID: f.Approval.ActorID, Decision: f.Approval.Decision,
	})
	if refused := refusalOf(err); refused != nil {
		return nil, &undecidedError{got, refused}
	}
	if err != nil {
		return nil, err
	}
	return world.SendJSON(ctx, f.Handoff)
}

// undecidedError means that the handoff has its first result, and the server refused the decision about it.
type undecidedError struct {
	first   *client.Outcome
	refused *client.ReplyError
}

func (e *undecidedError) Error() string { return e.refused.Error() }

// freshWorlds are the temporary worlds of a file, each on a private server. nth has the index of
// each town's world.
type freshWorlds struct {
	timeout time.Duration
	nth     map[string]int
	worlds  []*client.Client
	ends    []func() error // of the servers
}

// world returns the world of a town.
func (w *freshWorlds) world(ctx context.Context, townID string) (*client.Client, error) {
	n := w.nth[townID]
	if n == len(w.worlds) {
		srv, end, err := privateServer(ctx, server.Config{Sync: server.SyncInterval})
		if err != nil {
			return nil, err
		}
		w.ends = append(w.ends, end)
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
	for _, end := range w.ends {
		err = errors.Join(err, end())
	}
	return err
}

// privateServer starts a server in this process, with its own NATS and data. end ends the server
// and removes its data.
func privateServer(
	ctx context.Context, config server.Config,
) (srv *server.Server, end func() error, err error) {
	config.Listen, config.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	if config.Data, err = os.MkdirTemp("", "handoffctl-"); err == nil {
		srv, err = server.Start(ctx, config)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("a private server does not start: %w", err),
			os.RemoveAll(config.Data))
	}
	return srv, func() error {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.DefaultDrainTimeout)
		defer cancel()
		return errors.Join(srv.Close(stop), os.RemoveAll(config.Data))
	}, nil
}
