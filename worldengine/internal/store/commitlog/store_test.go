package commitlog_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/storetest"
	"worldengine/worldengine/internal/testkit/natstest"
)

// Both stores on JetStream keep the contract: on any stream, and with batches.
func TestStore_JetStream(t *testing.T) {
	t.Parallel()
	for name, grouped := range map[string]bool{"single": false, "grouped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Opened {
				js, err := jetstream.New(natstest.Connect(t))
				require.NoError(t, err)
				config := commitlog.StreamConfig("main", 1)
				config.DenyDelete = false // only here: a real log never discards by a request
				stream, err := js.CreateStream(t.Context(), config)
				require.NoError(t, err)
				return storetest.Opened{
					Store:   commitlog.NewStore(js, stream, grouped),
					Discard: func(seq uint64) { require.NoError(t, stream.DeleteMsg(t.Context(), seq)) },
				}
			})
		})
	}
}
