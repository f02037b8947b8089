package worldengine

import (
	"time"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/platform"
)

// IndexProgress returns the log sequence up to which the index is complete, and how far it has to go
// until it is built; end is 0 if it is.
func (e *Engine) IndexProgress() (indexed, end uint64) {
	indexed, end, building := e.index.Progress()
	if !building || indexed >= end {
		end = 0
	}
	return indexed, end
}

// Stats returns the engine's statistics. It is cheap and reads no stream.
func (e *Engine) Stats() messages.Stats {
	s := messages.Stats{
		Results: e.steps.Results(), Waiting: e.queue.Depth(),
		Applying:      e.games.Count(),
		CommitsMissed: e.feed.Missed(),
	}
	s.Indexed, s.IndexEnd = e.IndexProgress()
	if e.bus != nil {
		published := e.bus.Position()
		s.BusPublished = &published
	}
	if e.projector != nil {
		lag, behind := e.projector.Lag().Milliseconds(), e.projector.Behind()
		s.ProjectorLagMs, s.ProjectorBehind = &lag, &behind
	}
	s.AlertCounts = e.alerts.Stats()
	s.WorldPaused = e.worldPause.Known().By != nil
	s.TownsPaused = int(e.townsPaused.Load())
	s.PluginsAbsent = e.absent.Count()
	asked, _ := e.asked.Waiting(func(string) bool { return true })
	s.ApprovalsWaiting = asked.Count
	if since, err := time.Parse(time.RFC3339, asked.Since); err == nil {
		s.ApprovalOldestMs = e.config.Now().Sub(since).Milliseconds()
	}
	if err := e.log.Full(); err != nil {
		s.StorageFull = err.Error()
	}
	if err := e.LogLost(); err != nil {
		s.LogLost = err.Error()
	}
	s.ProcessorMs = platform.ProcessorTime().Milliseconds()
	return s
}
