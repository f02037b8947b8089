package main

import (
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/backup"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// A world that another program stored is neither served, checked nor copied, and stays as it is.
func TestServe_OtherFormat(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", data, "--world", "other", "--open")
	nc := p.connect()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	old := commitlog.LogStream("main", commitlog.DefaultSettings(), 1)
	delete(old.Metadata, "worldengine.format")
	log, err := js.CreateStream(t.Context(), old)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), wire.LogSubject("main", "town"), []byte("{}"))
	require.NoError(t, err)
	before, err := log.Info(t.Context())
	require.NoError(t, err)

	const why = "world main has format 1, and this one reads format " + commitlog.Format
	require.Contains(t, refusedStart(t, "--nats", p.url, "--data", t.TempDir()), why)
	require.Contains(t, checkConfig(t, 2, "--nats", p.url), why)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err = backup.Take(t.Context(), nc, dir, backup.Options{})
	require.ErrorIs(t, err, commitlog.ErrFormat)
	require.NoDirExists(t, dir)
	_, err = fsck.Run(t.Context(), nc, "main", fsck.Options{Repair: true})
	require.ErrorIs(t, err, commitlog.ErrFormat)

	after, err := log.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Config, after.Config)
	require.Equal(t, before.State.LastSeq, after.State.LastSeq)
	for _, name := range wire.Streams("main") {
		if name != wire.LogStream("main") {
			_, err := js.Stream(t.Context(), name)
			require.ErrorIs(t, err, jetstream.ErrStreamNotFound, name)
		}
	}
}
