package bench

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine"
	"worldengine/worldengine/wire"
)

// Projections is how far the server's projections were behind while handoffs were sent, by its own
// statistics: those of the first instance that answers.
type Projections struct {
	// Samples is how often it was asked.
	Samples int `json:"samples"`
	// The lag in milliseconds.
	LagP50 float64 `json:"lagP50Ms"`
	LagMax float64 `json:"lagMaxMs"`
	// BehindMax is by how many run events it was behind at most.
	BehindMax uint64 `json:"behindMax"`
}

// samplePause is how long it is between two samples.
const samplePause = 50 * time.Millisecond

// watchProjections asks the server until ctx is done. It returns nil where none projects.
func watchProjections(ctx context.Context, nc *nats.Conn, world string) *Projections {
	p := new(Projections)
	var lags []time.Duration
	for tick := time.Tick(samplePause); ctx.Err() == nil; {
		if lag, behind, ok := projections(ctx, nc, world); ok {
			lags = append(lags, lag)
			p.BehindMax = max(p.BehindMax, behind)
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	if len(lags) == 0 {
		return nil
	}
	slices.Sort(lags)
	p.Samples, p.LagP50, p.LagMax = len(lags), percentile(lags, 50), percentile(lags, 100)
	return p
}

// projections asks the server once; ok is false where it does not say.
func projections(
	ctx context.Context, nc *nats.Conn, world string,
) (lag time.Duration, behind uint64, ok bool) {
	_, stats, ok := serverStats(ctx, nc, world)
	if !ok || stats.ProjectorLagMs == nil || stats.ProjectorBehind == nil {
		return 0, 0, false
	}
	return time.Duration(*stats.ProjectorLagMs) * time.Millisecond, *stats.ProjectorBehind, true
}

// serverCPU returns the processor time that an instance of the server has used, and which instance.
func serverCPU(
	ctx context.Context, nc *nats.Conn, world string,
) (instance string, used time.Duration, ok bool) {
	instance, stats, ok := serverStats(ctx, nc, world)
	return instance, time.Duration(stats.ProcessorMs) * time.Millisecond,
		ok && stats.ProcessorMs > 0
}

// serverStats returns the statistics of the first instance that answers.
func serverStats(
	ctx context.Context, nc *nats.Conn, world string,
) (instance string, stats worldengine.Stats, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reply, err := nc.RequestWithContext(ctx, "$SRV.STATS."+wire.ServiceName, nil)
	if err != nil {
		return "", stats, false
	}
	var said struct {
		ID       string `json:"id"`
		Metadata struct {
			World string `json:"world"`
		} `json:"metadata"`
		Endpoints []struct {
			Data worldengine.Stats `json:"data"`
		} `json:"endpoints"`
	}
	if json.Unmarshal(reply.Data, &said) != nil || len(said.Endpoints) == 0 ||
		said.Metadata.World != world {
		return "", stats, false
	}
	return said.ID, said.Endpoints[0].Data, true
}
