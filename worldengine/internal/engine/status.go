package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
)

// catchUpTimeout is how long the index and the bus may take to reach the end of the log.
const catchUpTimeout = 2 * time.Second

// CatchUp waits until the index and the bus have reached the current end of the log. It returns that
// end, and a sentence about each of the two that is still behind.
func (e *Engine) CatchUp(ctx context.Context) (end uint64, behind []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	end, err = e.index.CatchUp(ctx)
	if end == 0 && err != nil {
		return 0, nil, err
	}
	late := func(name string, at uint64) {
		behind = append(behind,
			fmt.Sprintf("the %s is at %d of the log, which had %d", name, at, end))
	}
	if err != nil {
		late("index", e.index.Position())
	}
	for e.outbox != nil && e.outbox.Position() < end {
		if backoff.Sleep(ctx, 20*time.Millisecond) != nil {
			late("bus", e.outbox.Position())
			break
		}
	}
	return end, behind, nil
}

// Streams returns the states of the world's streams by name.
func (e *Engine) Streams(ctx context.Context) map[string]jetstream.StreamState {
	return commitlog.StreamStates(ctx, e.js, e.config.World)
}

// IndexProgress returns the log sequence up to which the index is complete. While the index is
// being built, end is the sequence that it has to reach; otherwise end is 0.
func (e *Engine) IndexProgress() (indexed, end uint64) {
	indexed, end = e.index.Progress()
	if indexed >= end {
		end = 0
	}
	return indexed, end
}

// Stats returns the engine's statistics. It is cheap and reads no stream.
func (e *Engine) Stats() messages.Stats {
	s := messages.Stats{
		Results: e.stepper.Results(), Unfinished: e.queue.CountUnfinished(),
		Applying:      e.dispatcher.Count(),
		CommitsMissed: e.feed.Missed(),
	}
	s.Indexed, s.IndexEnd = e.IndexProgress()
	if e.outbox != nil {
		published := e.outbox.Position()
		s.BusPublished = &published
	}
	if e.config.Runs.Projector {
		lag, behind := e.projector.Lag()
		s.ProjectorLagMs, s.ProjectorBehind = new(lag.Milliseconds()), &behind
	}
	s.AlertCounts = e.alerts.Stats()
	s.WorldPaused = e.worldPause.Known().By != nil
	s.TownsPaused = len(e.index.NewestByTown(index.Paused))
	s.PluginsAbsent = len(e.absences.Towns())
	asked, _ := e.approvals.CountUndecided(func(string) bool { return true })
	s.ApprovalsWaiting = asked.Count
	if since, err := time.Parse(time.RFC3339, asked.Since); err == nil {
		s.ApprovalOldestMs = e.config.Now().Sub(since).Milliseconds()
	}
	if err := e.log.StorageError(); err != nil {
		s.StorageFull = err.Error()
	}
	if err := e.watcher.Lost(); err != nil {
		s.LogLost = err.Error()
	}
	s.ReplicaDamaged = e.watcher.Replicas.Damaged()
	s.ProcessorMs = platform.ProcessorTime().Milliseconds()
	return s
}

// RecordAnswerTime counts the time from the arrival of a handoff to its answer, for the samples.
func (e *Engine) RecordAnswerTime(runID string, took time.Duration) {
	e.samples.Answered(runID, e.config.Now(), took)
}

// Samples returns at most points samples of the last minutes, each of whole minutes. They are about
// the handoffs of the towns; of all towns if townIDs is nil. The last sample is not over yet.
func (e *Engine) Samples(townIDs []string, minutes, points int) messages.Samples {
	step := time.Duration((minutes+points-1)/points) * time.Minute
	now := e.config.Now().UTC()
	to := now.Truncate(step).Add(step)
	from := to.Add(-time.Duration(minutes) * time.Minute).Truncate(step)
	return e.samples.Samples(layout.TownTokens(townIDs), from, to, step, now)
}

// Busy reports whether requests are queued or in hand.
func (e *Engine) Busy() bool { return e.queue.CountUnfinished() > 0 }
