package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Bounds of a look at the world.
const (
	// catchUpTimeout is how long the index and the bus may take to reach the end of the log.
	catchUpTimeout = 2 * time.Second
	// maxListedTowns is how many towns each list of a status names. maxDamageAlerts is how many damaged towns
	// get an alert of their own.
	maxListedTowns, maxDamageAlerts = 100, 5
)

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

// ReportTowns adds the states of towns to a report, and returns sentences about the plugins that are
// away. It omits each town for which includes(token) is false. Call it after CatchUp.
func (e *Engine) ReportTowns(
	ctx context.Context, report *messages.WorldReport, includes func(token string) bool,
) (problems []string, err error) {
	tokens := func(flag index.Flag) []string {
		return slices.DeleteFunc(e.index.Towns(flag), func(token string) bool { return !includes(token) })
	}
	paused, pending := tokens(index.Paused), tokens(index.Pending)
	report.Towns = len(tokens(0))
	report.States = messages.TownStates{Paused: len(paused), Applying: len(pending),
		InDoubt: len(tokens(index.InDoubt))}
	for _, token := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(
		paused[:min(len(paused), maxListedTowns)], pending[:min(len(pending), maxListedTowns)])))) {
		if err := e.describeTown(ctx, report, token); err != nil {
			return nil, err
		}
	}
	if err := e.approvals.Refresh(ctx); err != nil {
		return nil, err
	}
	report.Approvals, report.States.Waiting = e.approvals.CountUndecided(func(townID string) bool {
		return includes(wire.TownToken(townID))
	})
	return e.pluginsAbsent(report, includes), nil
}

// pluginsAbsent adds the towns whose plugin is away to a report, and returns a sentence about them: they
// may well have one cause. It omits each town for which includes(token) is false.
func (e *Engine) pluginsAbsent(
	report *messages.WorldReport, includes func(token string) bool,
) (problems []string) {
	var towns []string
	first := ""
	for _, townID := range slices.Sorted(maps.Keys(e.absences.Towns())) {
		away := e.dispatcher.AbsentGame(townID)
		if away == nil || !includes(wire.TownToken(townID)) { // the plugin may have come meanwhile
			continue
		}
		if towns = append(towns, townID); len(towns) <= maxListedTowns {
			report.PluginsAbsent = append(report.PluginsAbsent, *away)
		}
		if first == "" || away.Since < first {
			first = away.Since
		}
	}
	report.States.NoPlugin = len(towns)
	switch len(towns) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("the town %s has had no plugin since %s", towns[0], first)}
	}
	return []string{fmt.Sprintf("%d towns have no plugin, the first since %s: %s", len(towns), first,
		phrase.List(towns, len(towns)))}
}

// describeTown adds a town to the lists of a report. A damaged town is left out.
func (e *Engine) describeTown(
	ctx context.Context, report *messages.WorldReport, token string,
) error {
	current, err := e.log.LoadToken(ctx, token)
	if errors.Is(err, records.ErrTownDamaged) || err == nil && current.Seq == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	townID := current.LastState().Snapshot.TownID
	if by := current.Paused; by != nil {
		report.TownsPaused = append(report.TownsPaused, messages.TownPause{
			TownID: townID, ActorID: by.ActorID, Reason: by.Reason, Since: by.At})
	}
	if current.Pending != nil {
		report.TownsPending = append(report.TownsPending, messages.TownPending{
			TownID: townID, RunID: current.Pending.Run.RunID})
	}
	return nil
}

// AwaitedPlugin returns the absence of the plugin that the command of a run waits for; nil if the
// command waits for none.
func (e *Engine) AwaitedPlugin(run *runevents.Snapshot) *messages.AbsentPlugin {
	if run.Status.Terminal() {
		return nil
	}
	of := e.dispatcher.AbsentGame(machine.ReadStarted(run).TownID)
	if of == nil || of.RunID != run.RunID {
		return nil
	}
	return of
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
