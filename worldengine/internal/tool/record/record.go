// Package record makes fixtures of the handoffs that a world has judged.
package record

import (
	"context"
	"fmt"
	"time"

	"worldengine/worldengine/client"
	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Recorder asks a world for the fixtures of runs.
type Recorder struct {
	Fixtures []*fixture.Fixture
	// LeftOut counts the handoffs without a fixture by the reason.
	LeftOut map[string]int

	server *client.Client
	seen   map[string]bool // the handoffs that were recorded, by their bytes
}

// New returns a recorder of a client's world.
func New(server *client.Client) *Recorder {
	return &Recorder{server: server, seen: map[string]bool{}, LeftOut: map[string]int{}}
}

// Run records the handoff of a run. Before a duplicate it records the handoff that the duplicate
// repeats.
func (r *Recorder) Run(ctx context.Context, runID string) error {
	var reply struct {
		Fixtures []*fixture.Fixture `json:"fixtures"`
		LeftOut  string             `json:"leftOut"`
	}
	request := messages.RunGet{RunID: runID, Fixtures: true}
	_, err := r.server.Ask(ctx, wire.RunGet, request, &reply)
	if err != nil {
		return err
	}
	if reply.LeftOut != "" && reply.LeftOut != runs.ErrNotJudged.Error() {
		r.LeftOut[reply.LeftOut]++
	}
	for i, f := range reply.Fixtures {
		if last := len(reply.Fixtures) - 1; i < last && r.seen[string(f.Handoff)] {
			continue
		}
		r.seen[string(f.Handoff)] = true
		f.Name = fmt.Sprintf("%d %s", len(r.Fixtures)+1, f.Name)
		r.Fixtures = append(r.Fixtures, f)
	}
	return nil
}

// Town records the handoffs of a town, or of all towns for "", the oldest first.
func (r *Recorder) Town(ctx context.Context, townID string) error {
	var runIDs []string // all before the first fixture, so that no run is missed while fixtures are made
	for run, err := range r.server.Runs(ctx, messages.RunList{TownID: townID, Order: "oldest"}) {
		if err != nil {
			return err
		}
		runIDs = append(runIDs, run.RunID)
	}
	return r.runs(ctx, runIDs)
}

// Watch records the handoffs of a town, or of all towns for "", that are judged in a time from now on. The
// end of ctx ends only the wait.
func (r *Recorder) Watch(ctx context.Context, wait time.Duration, townID string) error {
	request := messages.EventListRequest{TownID: townID}
	page, err := r.server.EventList(ctx, request)
	if err != nil {
		return err
	}
	_ = backoff.Sleep(ctx, wait)
	ctx = context.WithoutCancel(ctx)
	var runIDs []string
	for seen := map[string]bool{"": true}; request.After != page.Cursor; {
		request.After = page.Cursor
		if page, err = r.server.EventList(ctx, request); err != nil { // an interrupt could not end a retry
			return err
		}
		for i := range page.Commits {
			if id := page.Commits[i].RunID; !seen[id] {
				seen[id], runIDs = true, append(runIDs, id)
			}
		}
	}
	return r.runs(ctx, runIDs)
}

// runs records runs, except those that the log has discarded meanwhile.
func (r *Recorder) runs(ctx context.Context, runIDs []string) error {
	for _, runID := range runIDs {
		if err := r.Run(ctx, runID); err != nil && !client.IsCode(err, wire.CodeUnknownRun) {
			return err
		}
	}
	return nil
}
