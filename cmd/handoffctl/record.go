package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// recordCommand makes fixtures of the handoffs that a world has judged.
type recordCommand struct {
	Town  string        `help:"Record only the handoffs of this town." placeholder:"ID"`
	RunID string        `name:"run" help:"Record only the handoff of this run." placeholder:"RUN-ID"`
	For   time.Duration `help:"Record only the handoffs that are judged in this time from now on, or until Ctrl-C." placeholder:"DURATION"`
	Out   string        `help:"File to write; standard output by default." placeholder:"FILE"`
}

func (recordCommand) Help() string {
	return `Writes a fixture for each handoff that the world has judged: the handoff, the state of
its town before, and the result byte for byte. handoffctl replay --fresh judges them again. record
leaves out a handoff that a server with the default rules and no game would answer otherwise, and
counts it on standard error: a game or other settings of the rules decided it, or the log no longer
keeps the state before.

Example:

    handoffctl record --town town-threatened --out fixtures.json`
}

func (c *recordCommand) Run(ctx context.Context, a *app) error {
	if err := checkOutput("--out", c.Out); err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	if c.RunID, err = a.runID(ctx, c.RunID, false); err != nil {
		return err
	}
	runIDs, err := c.runIDs(ctx, server)
	if err != nil {
		return err
	}
	if c.For > 0 {
		ctx = context.WithoutCancel(ctx) // an interrupt ends only the wait
	}
	r := &recorder{server: server, seen: map[string]bool{}, leftOut: map[string]int{}}
	for _, runID := range runIDs {
		err := r.record(ctx, runID)
		discarded := client.IsCode(err, wire.CodeUnknownRun) && (c.For > 0 || c.RunID == "")
		if err != nil && !discarded {
			return err
		}
	}
	for _, why := range slices.Sorted(maps.Keys(r.leftOut)) {
		fmt.Fprintf(a.err, "left out: %d, %s\n", r.leftOut[why], why)
	}
	if len(r.fixtures) == 0 && c.For == 0 {
		return failedf("there is nothing to record: the world has judged no such handoff that a " +
			"fresh server would answer in the same way; no file was written")
	}
	text, err := fixtureFile(r.fixtures, false)
	switch {
	case err != nil:
		return fmt.Errorf("a fixture cannot be written: %w", err)
	case c.Out == "":
		_, err := a.out.Write(text)
		return err
	}
	if err := os.WriteFile(c.Out, text, 0o666); err != nil {
		return usagef("--out: %v", err)
	}
	fmt.Fprintf(a.err, "%s in %s\n", counted.Of(len(r.fixtures), "fixture"), c.Out)
	return nil
}

// runIDs returns the ids of the runs to record, the oldest first. With --for it waits first.
func (c *recordCommand) runIDs(
	ctx context.Context, server *client.Client,
) (ids []string, err error) {
	switch {
	case c.For > 0:
		return c.newRunIDs(ctx, server)
	case c.RunID != "":
		return []string{c.RunID}, nil
	}
	request := messages.RunList{TownID: c.Town, Order: "oldest"}
	for more := true; more; more = request.After > 0 {
		page, err := listRuns(ctx, server, request, maxRunPage)
		if err != nil {
			return nil, err
		}
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].RunID)
		}
		request.After = page.Next
	}
	return ids, nil
}

// newRunIDs waits, and returns the ids of the runs that had events meanwhile. An interrupt ends the
// wait.
func (c *recordCommand) newRunIDs(
	ctx context.Context, server *client.Client,
) (ids []string, err error) {
	request, page := messages.EventListRequest{TownID: c.Town}, messages.EventListReply{}
	if _, err := server.Ask(ctx, wire.EventList, request, &page); err != nil {
		return nil, err
	}
	_ = backoff.Sleep(ctx, c.For)
	ctx = context.WithoutCancel(ctx)
	for seen := map[string]bool{"": true}; request.After != page.Cursor; {
		request.After, page = page.Cursor, messages.EventListReply{}
		if _, err := server.Ask(ctx, wire.EventList, request, &page); err != nil {
			return nil, err
		}
		for i := range page.Commits {
			if id := page.Commits[i].RunID; !seen[id] && cmp.Or(c.RunID, id) == id {
				seen[id], ids = true, append(ids, id)
			}
		}
	}
	return ids, nil
}

// recorder asks for the fixtures of runs.
type recorder struct {
	server   *client.Client
	seen     map[string]bool // the handoffs that were recorded, by their bytes
	leftOut  map[string]int  // by the reason
	fixtures []*fixtureParts
}

// record records the handoff of a run, and before a duplicate the handoff that it repeats.
func (r *recorder) record(ctx context.Context, runID string) error {
	var reply struct {
		Fixtures []*fixtureParts `json:"fixtures"`
		LeftOut  string          `json:"leftOut"`
	}
	request := messages.RunGet{RunID: runID, Fixtures: true}
	_, err := r.server.Ask(ctx, wire.RunGet, request, &reply)
	if err != nil {
		return err
	}
	if reply.LeftOut != "" && reply.LeftOut != runs.ErrNotJudged.Error() {
		r.leftOut[reply.LeftOut]++
	}
	for i, f := range reply.Fixtures {
		if last := len(reply.Fixtures) - 1; i < last && r.seen[string(f.Handoff)] {
			continue
		}
		r.seen[string(f.Handoff)] = true
		f.Name = fmt.Sprintf("%d %s", len(r.fixtures)+1, f.Name)
		r.fixtures = append(r.fixtures, f)
	}
	return nil
}
