package server

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/metrics"
)

// watch makes the metrics read the counters of the parts of the server.
func (s *Server) watch() error {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return err
	}
	s.metrics.Watch(func(ctx context.Context) metrics.Sample {
		sample := metrics.Sample{Streams: map[string]metrics.Stream{}}
		for name, state := range commitlog.StreamStates(ctx, js, s.config.Engine.World) {
			sample.Streams[name[strings.LastIndex(name, "_")+1:]] = metrics.Stream{
				Messages: state.Msgs, Bytes: state.Bytes, LastSequence: state.LastSeq,
			}
		}
		h := s.only()
		if t := h.serving.Load(); t != nil {
			sample.Serving = true
			sample.Stats, sample.Overload = t.engine.Stats(), t.service.Overload()
		} else if x := h.index.Load(); x != nil {
			sample.Stats.Indexed = x.Position()
		}
		if s.embedded != nil {
			sample.Embedded = &metrics.Embedded{
				DiskFree:      s.embedded.room.State().Free,
				Connections:   s.embedded.nats.NumClients(),
				SlowConsumers: s.embedded.nats.NumSlowConsumers(),
			}
		}
		if h.webhooks != nil {
			sent, lost := h.webhooks.Stats()
			sample.Webhooks = &metrics.Webhooks{Sent: sent, Lost: lost}
		}
		return sample
	})
	return nil
}
