package logwatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/commitlog"
)

// configuredLog is a log whose stream has a configuration.
type configuredLog struct {
	commitlog.Store
	jetstream.Stream
	info atomic.Pointer[jetstream.StreamInfo]
}

func (l *configuredLog) End(context.Context) (uint64, error) { return 1, nil }

func (l *configuredLog) CachedInfo() *jetstream.StreamInfo { return l.info.Load() }

func (l *configuredLog) configure(config jetstream.StreamConfig) {
	l.info.Store(&jetstream.StreamInfo{Config: config})
}

// Each limit that the stream of a log gets while the engine serves raises one alert.
func TestWatcher_Limits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var raised []runevents.Alert
		log := &configuredLog{}
		log.configure(jetstream.StreamConfig{MaxBytes: -1, MaxMsgs: -1})
		stop := run(t, newWatcher(&commitlog.Log{World: "main", Store: log, Stream: log}, func(a runevents.Alert) {
			raised = append(raised, a)
		}))
		for i, limit := range []jetstream.StreamConfig{
			{MaxBytes: 1, MaxMsgs: 1, Discard: jetstream.DiscardNew}, {MaxBytes: 1}, {MaxMsgs: 1}, {MaxAge: 1},
		} {
			for _, config := range []jetstream.StreamConfig{limit, {}} {
				log.configure(config)
				time.Sleep(3 * lookInterval) // of the bubble
				synctest.Wait()
				require.Len(t, raised, i)
			}
		}
		require.Equal(t, runevents.LogLimited, raised[0].Code)
		require.Contains(t, raised[0].Message, "--max-bytes=-1")
		stop()
	})
}
