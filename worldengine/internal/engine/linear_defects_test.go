package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
)

// Defect makes an engine break a rule. It changes the storage over which the engine is assembled.
type Defect func(*storage)

// Defects break one rule each, to test that the checks find it.
var Defects = map[string]Defect{
	"ignores the guard of a town": func(s *storage) {
		s.log.Store = &defectiveStore{Store: s.log.Store,
			without: jetstream.ExpectedLastSubjSeqHeader}
	},
	"forgets keys": func(s *storage) {
		s.reindex(emptySource{index.LogSource(s.log.Log)})
	},
	"answers before it has stored": func(s *storage) {
		s.log.Store = &defectiveStore{Store: s.log.Store, early: true}
	},
	"answers what it never stores": func(s *storage) {
		s.log.Store = &defectiveStore{Store: s.log.Store, loses: true}
	},
	"asks for no approval": func(s *storage) { s.config.policy = approval.Policy{} },
	"cancels, and stores it nowhere": func(s *storage) {
		s.log.Store = &defectiveStore{Store: s.log.Store, drops: machine.KindCancelled}
	},
	"loses decisions": func(s *storage) {
		s.log.Store = &defectiveStore{Store: s.log.Store, drops: machine.KindDecided}
	},
	"reads the past": func(s *storage) {
		s.log.Store = &defectiveStore{Store: s.log.Store, behind: true}
	},
}

// reindex replaces the index by one of another source, before an engine is assembled.
func (s *storage) reindex(source index.Source) {
	s.index.Index, _ = index.Open(context.Background(), index.Config{World: "main", Source: source,
		Logger: s.config.Logger})
}

// emptySource is a log that keeps nothing.
type emptySource struct{ index.Source }

func (s emptySource) EachAfter(
	ctx context.Context, _ uint64, _ func(uint64, string, nats.Header) error,
) (uint64, error) {
	return s.End(ctx)
}

// OpenDefective opens an engine with a defect, nil for none.
func OpenDefective(
	ctx context.Context, nc, publishConn *nats.Conn, config Config, plant Defect,
) (*Engine, error) {
	s, err := openStorage(ctx, nc, publishConn, config)
	if err != nil {
		return nil, err
	}
	if plant == nil {
		return start(ctx, s)
	}
	first := s.index.Index
	_ = first.Close() // it reads the log, whose store a defect may replace
	if plant(s); s.index.Index == first {
		s.reindex(index.LogSource(s.log.Log))
	}
	return start(ctx, s)
}

// defectiveStore is a store of the log that breaks a promise.
type defectiveStore struct {
	commitlog.Store
	without string       // a header that is dropped
	early   bool         // acknowledges before it stores
	loses   bool         // acknowledges every fourth message and does not store it
	drops   machine.Kind // acknowledges records of a kind and does not store them
	behind  bool         // reads the message before the last one
	count   atomic.Int64
}

func (s *defectiveStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	if s.without != "" {
		msg.Header.Del(s.without)
	}
	lost := s.loses && s.count.Add(1)%4 == 0 ||
		s.drops != "" && msg.Header.Get(layout.KindHeader) == string(s.drops)
	if !s.early && !lost {
		return s.Store.Publish(ctx, msg)
	}
	end, err := s.End(ctx)
	if err != nil {
		return nil, err
	}
	if s.early {
		go func() {
			time.Sleep(20 * time.Millisecond) // the defect
			_, _ = s.Store.Publish(context.Background(), msg)
		}()
	}
	// The engine does not count a duplicate as known: otherwise it would notice the loss by itself.
	return &jetstream.PubAck{Sequence: end + 1, Duplicate: true}, nil
}

func (s *defectiveStore) Last(
	ctx context.Context, subject string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := s.Store.Last(ctx, subject)
	if err != nil || msg == nil || !s.behind || s.count.Add(1)%2 != 0 {
		return msg, err
	}
	for seq := msg.Sequence - 1; seq > 0; seq-- {
		if before, err := s.At(ctx, seq); err == nil && before != nil && before.Subject == subject {
			return before, nil
		}
	}
	return msg, nil
}
