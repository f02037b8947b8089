package logwatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

// fullStore is a log whose NATS has no room while full is set.
type fullStore struct {
	commitlog.Store
	full bool
	seq  atomic.Uint64
}

func (s *fullStore) End(context.Context) (uint64, error) { return s.seq.Load(), nil }

func (s *fullStore) Publish(context.Context, *nats.Msg) (*jetstream.PubAck, error) {
	if s.full {
		return nil, &jetstream.APIError{Code: 503, ErrorCode: 10047, // insufficient storage
			Description: "insufficient storage resources available"}
	}
	return &jetstream.PubAck{Sequence: s.seq.Add(1)}, nil
}

// A NATS that refused a message for lack of room has room again when it stores one; that nothing was
// tried for a while proves nothing.
func TestWatcher_StorageWhileNothingIsTried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fullStore{full: true}
		var mu sync.Mutex
		var raised []runevents.AlertCode
		w := newWatcher(&commitlog.Log{World: "main", Store: store}, func(a runevents.Alert) {
			mu.Lock()
			defer mu.Unlock()
			raised = append(raised, a.Code)
		})
		w.Log.OnStorageFull = w.NoteStorageFull
		stop := run(t, w)
		tries := func(ends ...runevents.AlertCode) {
			_, err := w.Log.Append(t.Context(), &nats.Msg{Subject: "s", Header: nats.Header{}})
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
		stop()
	})
}

// silentAlerts is a NATS that does not answer about the stream of alerts.
type silentAlerts struct{ jetstream.JetStream }

func (silentAlerts) Stream(ctx context.Context, _ string) (jetstream.Stream, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// While the alerts of earlier engines cannot be read, the log is looked at all the same.
func TestWatcher_SilentAlerts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &away{}
		w := newWatcher(&commitlog.Log{World: "main", Store: log, CheckStorage: func() error { return nil }}, nil)
		w.Alerts, w.recalled = alerts.New(silentAlerts{}, alerts.Config{Logger: w.Logger, Now: time.Now}), false
		stop := run(t, w)
		synctest.Wait()
		log.silent.Store(true)
		time.Sleep(2 * (lookInterval + questionTimeout)) // of the bubble
		require.Positive(t, w.Silence())
		stop()
	})
}
