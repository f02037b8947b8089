package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/backup"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// run once starts handoffd, which must serve, and ends it.
func servedOnce(t *testing.T, args ...string) *program {
	t.Helper()
	p := launch(t, nil, append([]string{"--listen", "127.0.0.1:0"}, args...)...)
	require.NotEmpty(t, p.url, "%s", p.stderr)
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err, "%s", p.stderr)
	return p
}

// refusedStart starts handoffd, which must not serve, and returns why it does not.
func refusedStart(t *testing.T, args ...string) string {
	t.Helper()
	p := launch(t, nil, append([]string{"--listen", "127.0.0.1:0"}, args...)...)
	<-p.ended
	require.Empty(t, p.url, "it serves")
	require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
	return p.stderr.String()
}

// The settings of a world are stored with it: a server that is given none has them, and one that is
// given others is refused with each difference.
func TestAServerHasTheSettingsOfItsWorld(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	servedOnce(t, "--data", data, "--history-per-town", "2000", "--apply", "plugin")
	p := servedOnce(t, "--data", data)
	said := strings.Join(p.said, "\n")
	require.Contains(t, said,
		"settings  history-per-town=2000 apply=plugin")
	require.Regexp(t, `apply +plugin \(asked on`, said)
	servedOnce(t, "--data", data, "--history-per-town", "2000")

	why := refusedStart(t, "--data", data, "--history-per-town", "5000", "--apply", "local")
	require.Contains(t, why,
		"--history-per-town 5000, and the world has 2000; --apply local, and the world has plugin")
	require.Contains(t, why, "handoffctl world settings set")
	servedOnce(t, "--data", data, "--history-per-town", "5000", "--discard-history")
	require.Contains(t, strings.Join(servedOnce(t, "--data", data).said, "\n"),
		"history-per-town=5000")
}

// checkConfig runs handoffd --check-config.
func checkConfig(t *testing.T, status int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, status, run(t.Context(), append([]string{"--check-config"}, args...), &out,
		&errs), "%s%s", &out, &errs)
	return out.String() + errs.String()
}

// --check-config compares no settings with a world that is being served, and names the settings that
// a new one would have.
func TestCheckConfig_Settings(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	launch(t, nil, "--listen", "127.0.0.1:0", "--data", data)
	served := checkConfig(t, 0, "--data", data, "--history-per-town", "1500")
	require.Contains(t, served, "settings  not compared with those of the world: "+
		"server: another server uses this data directory")
	require.Contains(t, served, "apply     as the world says\n")
	fresh := checkConfig(t, 0, "--data", filepath.Join(t.TempDir(), "new"),
		"--history-per-town", "1500")
	require.Contains(t, fresh, "history-per-town=1500 apply=local")
	require.Contains(t, fresh, "apply     local (the built-in rules)\n")
}

// A history that becomes shorter is counted town by town, and refused before anything is changed.
func TestAShorterHistoryIsCounted(t *testing.T) {
	t.Parallel()
	nats := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--world", "other", "--open")
	js, err := jetstream.New(nats.connect())
	require.NoError(t, err)
	longer := commitlog.DefaultSettings()
	longer.HistoryPerTown = 3000
	_, err = js.CreateStream(t.Context(), commitlog.LogStream("main", longer, 1))
	require.NoError(t, err)
	for i := range 1500 { // of one town, and as many of many
		for _, subject := range []string{wire.LogSubject("main", "busy"),
			wire.LogSubject("main", fmt.Sprint("town-", i))} {
			_, err = js.PublishAsync(subject, []byte("{}"))
			require.NoError(t, err)
		}
	}
	<-js.PublishAsyncComplete()
	args := []string{"--nats", nats.url, "--data", t.TempDir(), "--history-per-town", "1000"}
	want := "--history-per-town would discard messages of WORLD_main_LOG: 500"
	require.Contains(t, checkConfig(t, 2, args...), want)
	require.Contains(t, refusedStart(t, args...), want)
	require.Contains(t, checkConfig(t, 0, append(args, "--discard-history")...),
		"discards  500 messages of WORLD_main_LOG")
}

// A backup has the settings of the world, in its manifest too, and a restored world has them again.
func TestABackupHasTheSettings(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--history-per-town", "2000",
		"--apply", "plugin")
	dir := filepath.Join(t.TempDir(), "backup")
	manifest, err := backup.Take(t.Context(), operator(t, p.connect()), dir, backup.Options{})
	require.NoError(t, err)
	require.Contains(t, manifest.Settings, commitlog.Setting{Name: "history-per-town",
		Value: "2000"})
	read, err := backup.Read(dir)
	require.NoError(t, err)
	require.Equal(t, manifest.Settings, read.Settings)
	data := filepath.Join(t.TempDir(), "restored")
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"restore", dir, "--data", data}, &out, &errs), "%s",
		&errs)
	require.Contains(t, strings.Join(servedOnce(t, "--data", data).said, "\n"),
		"history-per-town=2000 ")
}
