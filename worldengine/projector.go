package worldengine

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/projection"
)

// newProjector makes what projects the world's run events as they come, where Config.Projector asks
// for it; else nil.
func (e *Engine) newProjector(nc *nats.Conn) (*projection.Runner, error) {
	if !e.config.Projector {
		return nil, nil
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	world := e.config.World
	return projection.New(projection.Config{
		JetStream: js, Stream: EventStream(world),
		Subject: func(runID string) string { return EventSubject(world, "*", runID) },
		Alert:   e.raise,
		Logger:  e.config.Logger,
	}), nil
}

// alertReader raises what a projection for a reader found, as every projection must.
func (e *Engine) alertReader(alerts []runevents.Alert) {
	for _, a := range alerts {
		a.At = runevents.Timestamp(e.config.Now())
		e.raise(a)
	}
}
