package bench

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine"
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
	for tick := time.Tick(samplePause); ; {
		select {
		case <-tick:
		case <-ctx.Done():
			if len(lags) == 0 {
				return nil
			}
			slices.Sort(lags)
			p.Samples, p.LagP50, p.LagMax = len(lags), percentile(lags, 50), percentile(lags, 100)
			return p
		}
		if lag, behind, ok := projections(ctx, nc, world); ok {
			lags = append(lags, lag)
			p.BehindMax = max(p.BehindMax, behind)
		}
	}
}

// projections asks the server once; ok is false where it does not say.
func projections(ctx context.Context, nc *nats.Conn, world string) (lag time.Duration, behind uint64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reply, err := nc.RequestWithContext(ctx, "$SRV.STATS."+worldengine.ServiceName, nil)
	if err != nil {
		return 0, 0, false
	}
	var stats struct {
		Metadata struct {
			World string `json:"world"`
		} `json:"metadata"`
		Endpoints []struct {
			Data worldengine.Stats `json:"data"`
		} `json:"endpoints"`
	}
	if json.Unmarshal(reply.Data, &stats) != nil || len(stats.Endpoints) == 0 {
		return 0, 0, false
	}
	data := stats.Endpoints[0].Data
	if data.ProjectorLagMs == nil || data.ProjectorBehind == nil || stats.Metadata.World != world {
		return 0, 0, false
	}
	return time.Duration(*data.ProjectorLagMs) * time.Millisecond, *data.ProjectorBehind, true
}
