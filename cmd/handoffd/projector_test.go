package main

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// A projector runs in every server that is not told otherwise.
func TestAProjectorRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		runs bool
	}{{nil, true}, {[]string{"--projector"}, true}, {[]string{"--no-projector"}, false}} {
		p := launch(t, nil,
			append([]string{"--listen", "127.0.0.1:0", "--http", "off", "--data", t.TempDir()},
				c.args...)...)
		require.NotEmpty(t, p.url, "%s", p.stderr)
		require.Equal(t, c.runs, tellsLag(t, p.connect()), "%v", c.args)
		p.end(syscall.SIGTERM)
	}
}

// tellsLag reports whether the statistics say how far projections are behind.
func tellsLag(t *testing.T, nc *nats.Conn) bool {
	t.Helper()
	reply, err := nc.Request("$SRV.STATS."+wire.ServiceName, nil, 30*time.Second)
	require.NoError(t, err)
	var stats struct {
		Endpoints []struct {
			Data struct{ ProjectorLagMs *int64 }
		}
	}
	require.NoError(t, json.Unmarshal(reply.Data, &stats))
	require.NotEmpty(t, stats.Endpoints)
	return stats.Endpoints[0].Data.ProjectorLagMs != nil
}
