package projection_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/projection"
)

// keeps has a Runner keep its watermark, and look back at one event only.
func keeps(config *projection.Config) { config.Bucket, config.Lookback = "PROJECTOR", 1 }

// A Runner goes on from the watermark of the one before, however much has come meanwhile: it misses
// no event, and looks at no earlier one.
func TestItGoesOnFromItsWatermark(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	first := b.run(keeps)
	b.publish(lifecycle("first")...)
	first.reaches("first", 10) // from here on it reads what comes, however little it looks back
	b.publish(invalid("before")...)
	b.publish(lifecycle("last")...)
	first.reaches("last", 10)
	first.awaitEnd()
	first.stop()
	require.Contains(t, first.codes(), "INVALID_TRANSITION before-5")

	b.publish(invalid("meanwhile")...)
	for n := range 3 {
		b.publish(lifecycle(fmt.Sprint("later-", n))...)
	}
	second := b.run(keeps)
	second.reaches("meanwhile", 5)
	second.awaitEnd()
	require.Contains(t, second.codes(), "INVALID_TRANSITION meanwhile-5")
	require.NotContains(t, second.codes(), "INVALID_TRANSITION before-5",
		"was alerted about before")
	second.stop()

	third := b.run(keeps)
	third.awaitEnd()
	require.Empty(t, third.codes())
}

// The watermark of a stream that was made again is of no use: the new one is read from its
// beginning.
func TestAWatermarkOfAnotherStream(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	first := b.run(keeps)
	b.publish(lifecycle("a")...)
	first.reaches("a", 10)
	first.stop()
	require.NoError(t, b.js.DeleteStream(t.Context(), streamName))
	b.create()
	b.publish(invalid("b")...)
	second := b.run(keeps)
	second.reaches("b", 5)
	second.awaitEnd()
	require.Contains(t, second.codes(), "INVALID_TRANSITION b-5")
}

// A watermark that cannot be read is an error in the log and no reason to stand still.
func TestAWatermarkThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	kv, err := b.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "PROJECTOR"})
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), "watermark", []byte("{"))
	require.NoError(t, err)
	w := b.run(keeps)
	b.publish(lifecycle("a")...)
	w.awaitEnd()
	b.publish(lifecycle("b")...)
	w.reaches("b", 10)
}
