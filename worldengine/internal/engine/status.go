package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/engine/approvals"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/logwatch"
	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/engine/projector"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/messages"
)

// catchUpTimeout is how long the index and the bus may take to reach the end of the log.
const catchUpTimeout = 2 * time.Second

// Status shows how an engine is: how far each of its parts is, and how busy. Status is safe for concurrent use.
type Status struct {
	js         jetstream.JetStream
	log        *records.Log
	index      *samples.SampledIndex
	queue      *queue.Queue
	stepper    *stepper.Stepper
	dispatcher *game.Dispatcher
	approvals  *approvals.Reader
	worldPause *waiting.WorldPause
	alerts     *alerts.Alerts
	watcher    *logwatch.Watcher
	feed       *feed.Feed
	outbox     *outbox.Relay // nil without a bus
	projector  *projector.Projector
	projects   bool // the projector runs
	now        func() time.Time
}

// CatchUp waits until the index and the bus have reached the current end of the log. It returns that
// end, and a sentence about each of the two that is still behind.
func (s *Status) CatchUp(ctx context.Context) (end uint64, behind []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	end, err = s.index.CatchUp(ctx)
	if end == 0 && err != nil {
		return 0, nil, err
	}
	late := func(name string, at uint64) {
		behind = append(behind,
			fmt.Sprintf("the %s is at %d of the log, which had %d", name, at, end))
	}
	if err != nil {
		late("index", s.index.Position())
	}
	for s.outbox != nil && s.outbox.Position() < end {
		if backoff.Sleep(ctx, 20*time.Millisecond) != nil {
			late("bus", s.outbox.Position())
			break
		}
	}
	return end, behind, nil
}

// Streams returns the states of the world's streams by name.
func (s *Status) Streams(ctx context.Context) map[string]jetstream.StreamState {
	return commitlog.StreamStates(ctx, s.js, s.log.World)
}

// IndexProgress returns the log sequence up to which the index is complete. While the index is
// being built, end is the sequence that it has to reach; otherwise end is 0.
func (s *Status) IndexProgress() (indexed, end uint64) {
	indexed, end = s.index.Progress()
	if indexed >= end {
		end = 0
	}
	return indexed, end
}

// Stats returns the engine's statistics. It is cheap and reads no stream.
func (s *Status) Stats() messages.Stats {
	stats := messages.Stats{
		Results: s.stepper.Results(), Unfinished: s.queue.CountUnfinished(),
		Applying:      s.dispatcher.Count(),
		CommitsMissed: s.feed.Missed(),
	}
	stats.Indexed, stats.IndexEnd = s.IndexProgress()
	if s.outbox != nil {
		published := s.outbox.Position()
		stats.BusPublished = &published
	}
	if s.projects {
		lag, behind := s.projector.Lag()
		stats.ProjectorLagMs, stats.ProjectorBehind = new(lag.Milliseconds()), &behind
	}
	stats.AlertCounts = s.alerts.Stats()
	stats.WorldPaused = s.worldPause.Known().By != nil
	stats.TownsPaused = len(s.index.NewestByTown(index.Paused))
	stats.PluginsAbsent = len(s.dispatcher.Absences.Towns())
	undecided, _ := s.approvals.CountUndecided(func(string) bool { return true })
	stats.ApprovalsWaiting = undecided.Count
	if since, err := time.Parse(time.RFC3339, undecided.Since); err == nil {
		stats.ApprovalOldestMs = s.now().Sub(since).Milliseconds()
	}
	if err := s.log.StorageError(); err != nil {
		stats.StorageFull = err.Error()
	}
	if err := s.watcher.Lost(); err != nil {
		stats.LogLost = err.Error()
	}
	stats.ReplicaDamaged = s.watcher.Replicas.Damaged()
	stats.ProcessorMs = platform.ProcessorTime().Milliseconds()
	return stats
}

// RecordAnswerTime counts the time from the arrival of a handoff to its answer, for the samples.
func (s *Status) RecordAnswerTime(runID string, took time.Duration) {
	s.index.Answered(runID, s.now(), took)
}

// Samples returns at most points samples of the last minutes, each of whole minutes. They are about
// the handoffs of the towns; of all towns if townIDs is nil. The last sample is not over yet.
func (s *Status) Samples(townIDs []string, minutes, points int) messages.Samples {
	step := time.Duration((minutes+points-1)/points) * time.Minute
	now := s.now().UTC()
	to := now.Truncate(step).Add(step)
	from := to.Add(-time.Duration(minutes) * time.Minute).Truncate(step)
	return s.index.Samples(layout.TownTokens(townIDs), from, to, step, now)
}

// Busy reports whether requests are queued or in hand.
func (s *Status) Busy() bool { return s.queue.CountUnfinished() > 0 }

// StorageError returns why nothing can be stored now; nil if storing is possible, as far as is known.
func (s *Status) StorageError() error { return s.log.StorageError() }
