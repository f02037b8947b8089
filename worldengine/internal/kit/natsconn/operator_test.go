package natsconn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/testkit/natstest"
)

// A key that a server names is used only if it is a seed in a file of this user.
func TestOperatorKeyIsBelieved(t *testing.T) {
	t.Parallel()
	public, seed := natstest.UserKey(t)
	good := filepath.Join(t.TempDir(), "operator.nk")
	require.NoError(t, os.WriteFile(good, seed, 0o600))
	readable := filepath.Join(t.TempDir(), "readable.nk")
	require.NoError(t, os.WriteFile(readable, seed, 0o644))
	empty := filepath.Join(t.TempDir(), "empty.nk")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	link := filepath.Join(t.TempDir(), "link.nk")
	require.NoError(t, os.Symlink(good, link))
	// of a server that another program passes on
	proxied := filepath.Join(t.TempDir(), "proxied.nk")
	require.NoError(t, os.WriteFile(proxied,
		append(seed, "\n"+OperatorKeyAddress+"127.0.0.1:1\n"...),
		0o600))
	for file, says := range map[string]string{
		good: "", readable: "0600", empty: "has no seed",
		link: "not a file of this user", proxied: "another address",
		good + ".not": "no such file", "operator.nk": "absolute",
	} {
		url := startNATS(t, &natsserver.Options{
			NoAuthUser: "x",
			Users:      []*natsserver.User{{Username: "x"}},
			Nkeys:      []*natsserver.NkeyUser{{Nkey: public}},
		})
		address := "\n" + OperatorKeyAddress + strings.TrimPrefix(url, "nats://") + "\n"
		switch file {
		case good:
			require.NoError(t, os.WriteFile(file, append(seed[:len(seed):len(seed)], address...),
				0o600))
		case empty:
			require.NoError(t, os.WriteFile(file, []byte(address), 0o600))
		}
		nc, err := Options{}.Connect(url, "service")
		require.NoError(t, err)
		defer nc.Close()
		_, err = micro.AddService(nc, micro.Config{
			Name: protocol.ServiceName, Version: "0.0.0",
			Metadata: map[string]string{protocol.OperatorKeyMetadata: file},
		})
		require.NoError(t, err)
		require.NoError(t, nc.Flush())
		found, err := Options{}.ConnectOperator(url, "operator")
		if says != "" {
			require.ErrorIs(t, err, ErrOperatorKey, file)
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, "--nkey")
			continue
		}
		require.NoError(t, err)
		defer found.Close()
		require.Equal(t, nats.CONNECTED, found.Status())
		require.NotNil(t, found.Opts.SignatureCB)
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:4222": true, "[::1]:4222": true, "[::ffff:127.0.0.1]:1": true,
		"10.0.0.1:4222": false, "0.0.0.0:1": false, "": false,
	} {
		require.Equal(t, want, isLoopback(address), address)
	}
}
