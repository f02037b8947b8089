package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/store/commitlog/storetest"
)

// The log of the simulation keeps the contract of JetStream's: else the histories that the simulation
// finds to be right would show nothing about a real one.
func TestSim_StoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Opened {
		log := &simLog{window: map[string]uint64{}, history: map[string][]*simMessage{}}
		return storetest.Opened{
			Store:   &directStore{log: log},
			Discard: func(seq uint64) { log.messages[seq-1].gone = true },
		}
	})
}

// directStore is a simulated log whose operations wait for no turn.
type directStore struct {
	mu  sync.Mutex
	log *simLog
}

func (s *directStore) Publish(_ context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.store(msg, time.Now())
}

func (s *directStore) read(find func() *simMessage) (*jetstream.RawStreamMsg, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := find(); m != nil {
		return m.raw(), nil
	}
	return nil, nil
}

func (s *directStore) At(_ context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return s.read(func() *simMessage { return s.log.find(seq) })
}

func (s *directStore) Last(_ context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return s.read(func() *simMessage { return s.log.last(subject) })
}

func (s *directStore) Next(
	_ context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	return s.read(func() *simMessage { return s.log.next(subject, from) })
}

func (s *directStore) End(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.log.messages)), nil
}
