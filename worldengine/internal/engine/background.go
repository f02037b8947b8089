package engine

import (
	"context"
	"sync"

	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/engine/projector"
	"worldengine/worldengine/internal/store/alerts"
)

// background is the work of an engine in the background.
type background struct {
	// ctx is the context of the work, and of the turns of towns; stop ends it.
	ctx  context.Context
	stop context.CancelFunc

	follower  *follower
	reaper    *reaper
	feed      *feed.Feed
	alerts    *alerts.Alerts
	projector *projector.Projector
	projects  bool          // whether the projector is to run
	outbox    *outbox.Relay // nil without a bus
	running   sync.WaitGroup
}

// Start starts the work.
func (b *background) Start(context.Context) error {
	work := []func(context.Context){
		b.follower.recallAbsences, b.follower.followLog, b.reaper.reapWaiting, b.feed.Run, b.project,
	}
	if b.outbox != nil {
		work = append(work, b.outbox.Run)
	}
	for _, run := range work {
		b.running.Go(func() { run(b.ctx) })
	}
	return nil
}

// Stop ends the work, and the turns of towns that are not over.
func (b *background) Stop(context.Context) error {
	b.stop()
	b.running.Wait()
	return nil
}

// project projects runs until ctx is done, if it is configured, once no known alert is raised again.
func (b *background) project(ctx context.Context) {
	if b.alerts.LoadRaised(ctx) == nil && b.projects { // see ADR 24
		b.projector.Run(ctx)
	}
}
