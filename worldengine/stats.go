package worldengine

import (
	"worldengine/handoff"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/platform"
)

// Stats is what an engine has done since it was opened, and where it stands.
type Stats struct {
	// Results counts the results by status.
	Results map[handoff.Status]int64 `json:"results"`
	// Waiting is how many requests are queued or in hand.
	Waiting int `json:"waiting"`
	// Applying is how many commands are being applied outside the engine, by this
	// instance.
	Applying int `json:"applying"`
	// Indexed is the log sequence up to which the index is complete.
	Indexed uint64 `json:"indexed"`
	// IndexEnd is how far Indexed has to go until the index is built; absent if it is.
	IndexEnd uint64 `json:"indexEnd,omitzero"`
	// BusPublished is the log sequence up to which the bus has the run events; absent without one.
	BusPublished *uint64 `json:"busPublished,omitempty"`
	// CommitsMissed is how many commits of this engine were not published live.
	CommitsMissed int64 `json:"commitsMissed"`
	// ProjectorLagMs is how far projections are behind what was persisted, in milliseconds, and
	// ProjectorBehind by how many run events; both are absent without Config.Projector.
	ProjectorLagMs  *int64  `json:"projectorLagMs,omitempty"`
	ProjectorBehind *uint64 `json:"projectorBehind,omitempty"`
	alerts.Stats
	// WorldPaused is set while the world is paused.
	WorldPaused bool `json:"worldPaused,omitzero"`
	// TownsPaused is how many towns are paused by themselves, as far as the engine knows: of a
	// pause that another one has taken it hears within moments.
	TownsPaused int `json:"townsPaused"`
	// PluginsAbsent is how many towns had no plugin when this engine last asked for one.
	PluginsAbsent int `json:"pluginsAbsent"`
	// StorageFull is why nothing is stored at the moment; absent where something is.
	StorageFull string `json:"storageFull,omitzero"`
	// LogLost is why nothing is judged before an operator acts; absent where handoffs are judged.
	LogLost string `json:"logLost,omitzero"`
	// ProcessorMs is the processor time that the engine's process has used, in milliseconds.
	ProcessorMs int64 `json:"processorMs"`
}

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
func (e *Engine) Stats() Stats {
	s := Stats{
		Results: map[handoff.Status]int64{}, Waiting: e.queue.Depth(),
		Applying:      e.games.Count(),
		CommitsMissed: e.feed.Missed(),
	}
	s.Indexed, s.IndexEnd = e.IndexProgress()
	for i, status := range handoff.Statuses() {
		s.Results[status] = e.results[i].Load()
	}
	if e.bus != nil {
		published := e.bus.Position()
		s.BusPublished = &published
	}
	if e.projector != nil {
		lag, behind := e.projector.Lag().Milliseconds(), e.projector.Behind()
		s.ProjectorLagMs, s.ProjectorBehind = &lag, &behind
	}
	s.Stats = e.alerts.Stats()
	s.WorldPaused = e.worldPause.Known().By != nil
	s.TownsPaused = int(e.townsPaused.Load())
	s.PluginsAbsent = e.absent.Count()
	if err := e.log.Full(); err != nil {
		s.StorageFull = err.Error()
	}
	if err := e.LogLost(); err != nil {
		s.LogLost = err.Error()
	}
	s.ProcessorMs = platform.ProcessorTime().Milliseconds()
	return s
}
