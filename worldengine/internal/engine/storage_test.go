package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
)

// fullStore is a log whose NATS has no room while full is set.
type fullStore struct {
	commitlog.Store
	full bool
	seq  uint64
}

func (s *fullStore) Publish(context.Context, *nats.Msg) (*jetstream.PubAck, error) {
	if s.full {
		return nil, &jetstream.APIError{Code: 503, ErrorCode: 10047, // insufficient storage
			Description: "insufficient storage resources available"}
	}
	s.seq++
	return &jetstream.PubAck{Sequence: s.seq}, nil
}

// A NATS that refused a message for lack of room has room again when it stores one; that nothing was
// tried for a while proves nothing.
func TestWatchStorage_NothingIsTried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fullStore{full: true}
		var mu sync.Mutex
		var raised []runevents.AlertCode
		e := &Engine{
			config: Config{Now: time.Now},
			log:    &records.Log{Log: &commitlog.Log{World: "main", Store: store}},
			alerts: alerts.New(nil, alerts.Config{
				Logger: slog.New(slog.DiscardHandler), Now: time.Now,
				Notify: func(a runevents.Alert) {
					mu.Lock()
					defer mu.Unlock()
					raised = append(raised, a.Code)
				},
			}),
		}
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { e.watchStorage(ctx) })
		tries := func(ends ...runevents.AlertCode) {
			_, err := e.log.Append(ctx, &nats.Msg{Subject: "s", Header: nats.Header{}})
			require.Equal(t, store.full, errors.Is(err, commitlog.ErrStorageFull), "%v", err)
			time.Sleep(time.Minute) // of the bubble
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, ends, raised)
		}
		tries(runevents.StorageFailed)
		tries(runevents.StorageFailed)
		store.full = false
		tries(runevents.StorageFailed, runevents.StorageRecovered)
		cancel()
		watching.Wait()
	})
}
