package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// replayCommand sends the handoffs of fixtures.
type replayCommand struct {
	Paths       []string `arg:"" name:"path" help:"Files, and directories whose *.json, *.jsonl and *.ndjson are read, with those of their subdirectories; - for standard input."`
	Concurrency int      `help:"How many towns are replayed at once. The handoffs of one town stay in their order." default:"1"`
	Strict      bool     `help:"Refuse fixtures that expect nothing, before anything is sent."`
	Fresh       bool     `help:"Replay against throw-away servers of its own, with a new world for each file."`
	Update      bool     `help:"Write the answers into the fixtures that failed or expect nothing, and show the differences."`
	JUnit       string   `name:"junit" help:"Write a report in JUnit's XML to this file, too." placeholder:"FILE"`
}

// Help is the command's long help.
func (replayCommand) Help() string {
	return `A file holds one fixture, an array of them, or one after another (JSON Lines). A fixture
is a handoff by itself, or {"handoff": …, "snapshot": …, "expect": {"status", "reasonCode",
"result", "resultBytes", "error"}, "game": …, "approval": …, "name": …, "comment": …}. Only the
handoff is required; a member of another name is refused.

With "game", a command-applied.v1 such as {"status": "applied", "snapshot": …} or {"status":
"refused", "reasonCode": …}, replay is the game of the town and answers so. With "approval",
{"decision": "approve" or "reject", "actorId": …, "reason": …}, the proposal takes a person's
approval: replay decides and sends the handoff again, and without a decision it does neither. Both
need a snapshot, and --fresh.

Where a fixture has a snapshot, replay first creates the town or replaces its state. The server
refuses that where it would lower the town's day, and the fixture fails. Of "expect" only the
members that are given are compared: "result" as JSON, "resultBytes" byte for byte; "error" is the
machine code of an error reply. A handoff that gets an error reply that the fixture does not expect
fails. A fixture that expects nothing is sent and counted as unchecked. Prints how many handoffs
ended in each status and every failure, and exits 1 when there is a failure. With --concurrency
above 1 the fixtures of one town keep their order, and those of different towns run side by side.

With --update a fixture that fails, or expects nothing, expects its answer from now on: of a result
the members that its "expect" has, or status, reasonCode and resultBytes if it has none. The
difference is shown, and the file is written anew, each fixture on one line. A snapshot that could
not be put stays a failure. Nothing is written when the replay was cut short.

With --fresh no server is needed, and every file begins with an empty world. Where a snapshot would
lower the day of its town, the town goes on in another empty world.

Examples:

    handoffctl replay fixtures/ --fresh --strict --junit report.xml
    handoffctl replay fixtures/ --fresh --update`
}

// Run replays the fixtures.
func (c *replayCommand) Run(ctx context.Context, a *app) (err error) {
	if c.Concurrency < 1 {
		return usagef("--concurrency must be at least 1, not %d", c.Concurrency)
	}
	if err := checkOutput("--junit", c.JUnit); err != nil {
		return err
	}
	fixtures, err := loadFixtures(a, c.Paths)
	if err != nil {
		return err
	}
	if err := c.checkStrict(fixtures); err != nil {
		return err
	}
	if err := c.checkUpdate(fixtures); err != nil {
		return err
	}
	for i := range fixtures {
		if f := &fixtures[i]; !c.Fresh && (f.game != nil || f.approval != nil) {
			return usagef("%s has an outcome of a game or a person: replay it with --fresh", f.label)
		}
	}
	player := &player{fixtures: fixtures, progress: newProgress(a.err, len(fixtures))}
	player.done = make([]*replayed, len(fixtures))
	if c.Fresh {
		fresh := &freshWorlds{timeout: a.flags.Timeout}
		defer func() { err = errors.Join(err, fresh.close()) }()
		player.world = fresh.of
	} else {
		server, err := a.connect()
		if err != nil {
			return err
		}
		defer server.Conn.Close()
		player.world = func(context.Context, string, int) (*client.Client, error) {
			return server, nil
		}
	}
	player.fresh = c.Fresh
	start := time.Now()
	stopped := player.play(ctx, c.Concurrency)
	player.progress.end()
	if c.JUnit != "" {
		if err := writeJUnit(c.JUnit, fixtures, player.done); err != nil {
			return err
		}
	}
	took := time.Since(start)
	var updates []update
	if c.Update && stopped == nil {
		if updates, err = a.update(fixtures, player.done); err != nil {
			return err
		}
	}
	return errors.Join(stopped, a.printReplay(player.done, took, updates, stopped))
}

// checkStrict refuses fixtures that expect nothing, where --strict asks for that.
func (c *replayCommand) checkStrict(fixtures []fixture) error {
	if !c.Strict {
		return nil
	}
	for i := range fixtures {
		if !fixtures[i].expect.compares() {
			return usagef("%s expects nothing, and --strict refuses that", fixtures[i].label)
		}
	}
	return nil
}

// player replays fixtures.
type player struct {
	// world returns the world that the fixtures of a file are sent to. With fresh, the nth of a
	// file is empty at first.
	world    func(ctx context.Context, file string, nth int) (*client.Client, error)
	fresh    bool
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
				nth := 0 // the world of the lane, of those of its file
				for _, i := range lane {
					if context.Cause(ctx) != nil {
						return
					}
					done, err := p.replayIn(ctx, &p.fixtures[i], &nth)
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
// where nothing happens at once, else those of each town. In fresh worlds the towns of each file
// are apart.
func (p *player) lanes(concurrency int) [][]int {
	var lanes [][]int
	of := map[string]int{}
	for i := range p.fixtures {
		key := p.fixtures[i].town
		switch {
		case p.fresh:
			key = p.fixtures[i].file + "\x00" + key
		case concurrency == 1:
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

// replayIn replays one fixture in the nth world of its file, or in the next one where that is
// needed. An error means that no answer came.
func (p *player) replayIn(ctx context.Context, f *fixture, nth *int) (replayed, error) {
	start := time.Now()
	for {
		server, err := p.world(ctx, f.file, *nth)
		if err != nil {
			return replayed{}, err
		}
		done, lower, err := replay(ctx, server, f, p.fresh)
		if p.fresh && lower {
			*nth++
			continue
		}
		done.took = time.Since(start)
		return done, err
	}
}

// replay replays one fixture. lower reports that its snapshot would lower the day of its town.
func replay(
	ctx context.Context, server *client.Client, f *fixture, fresh bool,
) (done replayed, lower bool, err error) {
	var refused *client.ReplyError
	if f.snapshot != nil {
		err := prepare(ctx, server, f, fresh)
		if errors.As(err, &refused) && refused.Refused() {
			return replayed{outcome: refusedOutcome, failure: &mismatch{
				Fixture: f.label, Expected: "its snapshot to be put",
				Got: "error " + refused.Error(),
			}}, refused.Code == string(wire.CodeEpochRegression), nil
		}
		if err != nil {
			return replayed{}, false, err
		}
	}
	got, err := f.send(ctx, server)
	if errors.As(err, &refused) && refused.Refused() {
		return judgeRefusal(f, refused), false, nil
	}
	if err != nil {
		return replayed{}, false, err
	}
	return judgeResult(f, got), false, nil
}

// send sends the fixture's handoff, and does as its game and its person do.
func (f *fixture) send(ctx context.Context, server *client.Client) (answer, error) {
	if f.game != nil {
		game, err := plugin.Serve(server.Conn, plugin.Config{
			World: server.World, Towns: []string{f.town}, Memory: plugin.NewVolatileMemory(),
			Logger: slog.New(slog.DiscardHandler),
			Apply: func(context.Context, *apply.Command) (apply.Answer, error) {
				return *f.game, nil
			},
		})
		if err != nil {
			return answer{}, err
		}
		defer func() { _ = game.Close(ctx) }() // a world that is thrown away
	}
	got, err := sendHandoff(ctx, server, f.handoff)
	if err != nil || f.approval == nil || f.approval.Decision == "" {
		return got, err
	}
	_, err = server.Decide(ctx, client.Decision{
		HandoffID: got.parsed.HandoffID, TownID: f.town, Reason: f.approval.Reason,
		ActorID: f.approval.ActorID, Approve: f.approval.Decision == messages.Approve,
	})
	if err != nil {
		return answer{}, err
	}
	return sendHandoff(ctx, server, f.handoff)
}

// bindings says who applies the commands of the fixture's town, and which types take approval.
func (f *fixture) bindings() client.Put {
	put := client.Put{Apply: string(apply.Local), Approval: []handoff.ProposalType{}}
	if f.game != nil {
		put.Apply = string(apply.Plugin)
	}
	if f.approval != nil {
		put.Approval = handoff.ProposalTypes()
	}
	return put
}

// prepare makes the fixture's snapshot the state of its town, in a fresh world with its bindings.
func prepare(ctx context.Context, server *client.Client, f *fixture, fresh bool) error {
	var put client.Put
	if fresh {
		put = f.bindings()
	}
	_, err := server.PutTownJSON(ctx, f.snapshot, put)
	var refused *client.ReplyError
	if !errors.As(err, &refused) || refused.Code != string(wire.CodeTownExists) {
		return err
	}
	current, err := currentHash(ctx, server, f.snapshot)
	if err != nil {
		return err
	}
	if wanted, err := town.Parse(f.snapshot, schemas.Limits{}); !fresh && err == nil &&
		wanted.Hash == current {
		return nil
	}
	put.Expected = current
	_, err = server.PutTownJSON(ctx, f.snapshot, put)
	return err
}
