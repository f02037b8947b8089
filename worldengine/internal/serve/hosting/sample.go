package hosting

import (
	"context"
	"strings"

	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/internal/store/commitlog"
)

// maxSamples is how many worlds a scrape asks NATS about side by side.
const maxSamples = 16

// Sample returns the values of all worlds for metrics, in the order of their names.
func (ws *Worlds) Sample(ctx context.Context) []metrics.WorldSample {
	all := ws.all()
	samples := make([]metrics.WorldSample, len(all))
	each(all, maxSamples, func(i int, w *World) { samples[i] = w.sample(ctx) })
	return samples
}

func (w *World) sample(ctx context.Context) metrics.WorldSample {
	sample := metrics.WorldSample{World: w.name, Streams: map[string]metrics.Stream{}}
	for name, state := range commitlog.StreamStates(ctx, w.worlds.shared.JetStream, w.name) {
		sample.Streams[name[strings.LastIndex(name, "_")+1:]] = metrics.Stream{
			Messages: state.Msgs, Bytes: state.Bytes, LastSequence: state.LastSeq,
		}
	}
	if t := w.tenure(); t != nil {
		sample.Serving = true
		sample.Stats, sample.Overload = t.engine.Status().Stats(), t.service.Overload()
	} else {
		sample.Stats.Indexed, _ = w.Indexed()
	}
	return sample
}
