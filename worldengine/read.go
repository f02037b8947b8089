package worldengine

import (
	"context"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/index"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// Alerts returns the alerts of the engine's world.
func (e *Engine) Alerts() *alerts.Alerts { return e.alerts }

// CountTowns returns how many towns there are.
func (e *Engine) CountTowns(ctx context.Context) (uint64, error) {
	all, err := commitlog.SubjectsOf(ctx, e.log.Stream, wire.LogSubject(e.config.World, "*"))
	_, _ = e.index.Sync(ctx) // or towns that were removed just now count
	n := uint64(len(all))
	return n - min(n, uint64(len(e.index.Towns(index.Removed)))), err
}

// Runs returns the runs of the engine's world.
func (e *Engine) Runs() *runs.Store { return e.runs }

// Feed returns the commits of the engine's world for their readers.
func (e *Engine) Feed() *feed.Feed { return e.feed }

// Settings returns the settings of the world that the engine was opened with.
func (e *Engine) Settings() commitlog.Settings { return e.config.Settings() }

// Bounds returns how many requests may wait for one town, and how many may be in hand altogether.
func (e *Engine) Bounds() (perTown, total int) { return e.config.QueuePerTown, e.config.QueueTotal }

// Reach returns nil if the log answers.
func (e *Engine) Reach(ctx context.Context) error {
	_, err := e.log.End(ctx)
	return err
}

// Known has the messages that the engine has seen in the log, for the next engine's Config.
func (e *Engine) Known() *commitlog.Known { return &e.log.Known }

// MayStore returns why nothing can be stored at the moment, and nil if something can as far as
// is known.
func (e *Engine) MayStore() error { return e.log.Full() }

// LogLost returns an ErrLogLost while the log lacks messages that this engine has committed or
// read, so that nothing is committed; else nil.
func (e *Engine) LogLost() error {
	if lost := e.logLost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// Fixtures returns the maker of the fixtures of runs.
func (e *Engine) Fixtures() *runs.Fixtures {
	return &runs.Fixtures{Ends: e.ends, Receipt: e.findReceipt}
}
