package server

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/internal/store/commitlog"
)

// watch makes the metrics read the counters of the parts of the server.
func (s *Server) watch() error {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return err
	}
	s.metrics.Watch(func(ctx context.Context) metrics.Sample { return s.sample(ctx, js) })
	return nil
}

func (s *Server) sample(ctx context.Context, js jetstream.JetStream) (sample metrics.Sample) {
	sample.Worlds = s.sampleWorlds(ctx, js)
	for i := range sample.Worlds { // one service counts for all worlds
		sample.StrayReplies = max(sample.StrayReplies, sample.Worlds[i].Overload.StrayReplies)
	}
	if s.embedded != nil {
		sample.Embedded = &metrics.Embedded{
			DiskFree:      s.embedded.Disk().State().Free,
			Connections:   s.embedded.Server().NumClients(),
			SlowConsumers: s.embedded.Server().NumSlowConsumers(),
		}
	}
	if s.webhooks != nil {
		sent, lost := s.webhooks.Stats()
		sample.Webhooks = &metrics.Webhooks{Sent: sent, Lost: lost}
	}
	return sample
}

// besideInScrape is how many worlds a scrape asks NATS about side by side.
const besideInScrape = 16

// sampleWorlds returns the values of all worlds, in the order of their names.
func (s *Server) sampleWorlds(ctx context.Context, js jetstream.JetStream) []metrics.WorldSample {
	all := s.worlds.all()
	samples := make([]metrics.WorldSample, len(all))
	var sampling errgroup.Group
	sampling.SetLimit(besideInScrape)
	for i, h := range all {
		sampling.Go(func() error {
			samples[i] = h.sample(ctx, js)
			return nil
		})
	}
	_ = sampling.Wait() // none returns an error
	return samples
}

func (h *hosted) sample(ctx context.Context, js jetstream.JetStream) metrics.WorldSample {
	sample := metrics.WorldSample{World: h.world, Streams: map[string]metrics.Stream{}}
	for name, state := range commitlog.StreamStates(ctx, js, h.world) {
		sample.Streams[name[strings.LastIndex(name, "_")+1:]] = metrics.Stream{
			Messages: state.Msgs, Bytes: state.Bytes, LastSequence: state.LastSeq,
		}
	}
	if t := h.serving.Load(); t != nil {
		sample.Serving = true
		sample.Stats, sample.Overload = t.engine.Stats(), t.service.Overload()
	} else if x := h.index.Load(); x != nil {
		sample.Stats.Indexed = x.Position()
	}
	return sample
}
