package main

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// A bit that was flipped in what is derived from the log is found with its place in the log, and no
// town is another for it. A repair makes the message from the log again; of a receipt it can do so
// only when the stream was removed before, since NATS refuses to store what takes the place of a
// damaged message.
func TestAFlippedBitInAReceiptOrEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream, what string
		removed      bool
	}{
		"receipt": {wire.ReceiptStream("main"), "the receipt is missing", true},
		"event":   {wire.EventStream("main"), "the event is missing", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPopulated(t)
			path := filepath.Join(r.args[3], "jetstream", "$G", "streams", c.stream,
				"msgs", "1.blk")
			block, err := os.ReadFile(path)
			require.NoError(t, err)
			bodies := regexp.MustCompile("\r\n\r\n{").FindAllIndex(block, -1)
			require.Greater(t, len(bodies), 10)
			block[bodies[len(bodies)/2][1]+20] ^= 1
			require.NoError(t, os.WriteFile(path, block, 0o640))
			p, nc := r.serve(nil, "interval")
			report, err := fsck.Run(t.Context(), operator(t, nc), "main", fsck.Options{})
			require.NoError(t, err)
			require.Len(t, report.Findings, 1)
			require.Equal(t, c.what, report.Findings[0].What)
			require.Positive(t, report.Findings[0].LogSequence)

			if c.removed {
				js, err := jetstream.New(operator(t, nc))
				require.NoError(t, err)
				require.NoError(t, js.DeleteStream(t.Context(), c.stream))
			}
			report, err = fsck.Run(t.Context(), operator(t, nc), "main", fsck.Options{Repair: true})
			require.NoError(t, err)
			require.True(t, report.Clean(), "%+v", report.Repair)
			p.end(syscall.SIGTERM)
			nc.Close()
			r.verify()
		})
	}
}
