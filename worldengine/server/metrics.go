package server

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/metrics"
)

// watch has the metrics read the counters of the parts of the server.
func (s *Server) watch() error {
	js, err := jetstream.New(s.conn)
	if err != nil {
		return err
	}
	source := metrics.Source{
		Serving: func() (stats messages.Stats, overload messages.Overload, serving bool) {
			if t := s.serving.Load(); t != nil {
				return t.engine.Stats(), t.service.Overload(), true
			}
			if x := s.index.Load(); x != nil {
				stats.Indexed = x.Position()
			}
			return stats, overload, serving
		},
		Streams: func(ctx context.Context) map[string]metrics.Stream {
			all := map[string]metrics.Stream{}
			for name, state := range commitlog.StreamStates(ctx, js, s.config.Engine.World) {
				all[name[strings.LastIndex(name, "_")+1:]] = metrics.Stream{
					Messages: state.Msgs, Bytes: state.Bytes, LastSequence: state.LastSeq,
				}
			}
			return all
		},
	}
	if s.embedded != nil {
		source.Disk = func() uint64 { return s.embedded.room.State().Free }
		source.NATS = func() (int, int64) {
			return s.embedded.nats.NumClients(), s.embedded.nats.NumSlowConsumers()
		}
	}
	if s.webhooks != nil {
		source.Webhooks = s.webhooks.Stats
	}
	s.metrics.Watch(source)
	return nil
}
