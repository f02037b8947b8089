package backup_test

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
)

// talk returns a handoff for the town's present state, on the wire.
func talk(t testing.TB, nc *nats.Conn) string {
	t.Helper()
	var at struct{ Snapshot town.Snapshot }
	ask(t, nc, "town.get", `{"townId":"town-threatened"}`, &at)
	h := towntest.Propose(t, town.NewState(&at.Snapshot), handoff.TalkToTownsfolk, "casual")
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return string(encoded)
}

// status sends a handoff and returns its status.
func status(t testing.TB, nc *nats.Conn, encoded string) string {
	t.Helper()
	var result struct{ Status string }
	ask(t, nc, "handoff", encoded, &result)
	return result.Status
}

// pad fills the log between two commits with incompressible data: more than the window of a
// snapshot, part of which every processor compresses.
func pad(t testing.TB, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	body := make([]byte, 512<<10)
	for i := range 16 + 4*runtime.GOMAXPROCS(0) {
		_, _ = rand.Read(body)
		_, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: logtest.AppendSubject(t, js, fmt.Sprint("world.main.refused.pad", i)),
			Data:    body, Header: nats.Header{"Kind": {"put"}},
		})
		require.NoError(t, err)
	}
}

// backUpDuring makes a backup, and calls work when the copy of the log has begun and is blocked.
func backUpDuring(t testing.TB, nc *nats.Conn, dir string, work func()) *backup.Manifest {
	t.Helper()
	proxy, begun := natstest.NewProxy(t, nc.ConnectedAddr()), make(chan struct{})
	var first sync.Once
	_, err := nc.Subscribe("$JS.SNAPSHOT.ACK."+layout.LogStream("main")+".>", func(*nats.Msg) {
		first.Do(func() {
			proxy.Cut(true) // at once: the copy goes on meanwhile
			close(begun)
		})
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	through := natstest.Dial(t, "nats://"+proxy.Address())
	var m *backup.Manifest
	ended := make(chan error, 1)
	go func() {
		var err error
		m, err = backup.Create(t.Context(), through, dir, backup.Options{})
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("the copy ended without a chunk: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the copy of the log does not begin")
	}
	work()
	proxy.Cut(false)
	require.NoError(t, <-ended)
	return m
}

// oldest returns the first message of a town's history.
func oldest(t testing.TB, nc *nats.Conn) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	log, err := js.Stream(t.Context(), layout.LogStream("main"))
	require.NoError(t, err)
	msg, err := log.GetMsg(t.Context(), 1,
		jetstream.WithGetMsgSubject("world.main.log.town-threatened"))
	require.NoError(t, err)
	return msg.Sequence
}

// While a full history is copied, its oldest message is dropped after it was copied, and the next one
// before. The messages before that hole are not restored, and a check of the restored world finds no
// damage.
func TestCreate_HistoryGoesOn(t *testing.T) {
	t.Parallel()
	from, dir := natstest.Connect(t), filepath.Join(t.TempDir(), "backup")
	serve(t, from, engine.Config{Settings: worldsettings.Settings{HistoryPerTown: 3}})
	pad(t, from)
	missing := talk(t, from)
	require.Equal(t, "executed", status(t, from, missing))
	commit(t, from, 1)
	first := oldest(t, from)
	m := backUpDuring(t, from, dir, func() { commit(t, from, 2) })
	left := oldest(t, from) - 1
	require.Equal(t,
		[]backup.DroppedMessages{{Subject: "world.main.log.town-threatened", Before: m.Streams[0].LastSeq}},
		m.Dropped)
	require.Less(t, first, left)

	to := natstest.Connect(t)
	_, err := restore(t.Context(), to, dir, backup.RestoreOptions{})
	require.NoError(t, err)
	require.Equal(t, m.Dropped[0].Before, oldest(t, to))
	serve(t, to, engine.Config{Settings: worldsettings.Settings{HistoryPerTown: 3}})
	require.Equal(t, unidentified(configs(t, from)), unidentified(configs(t, to)))
	report, err := fsck.Run(t.Context(), to, "main", fsck.Options{})
	require.NoError(t, err)
	for _, f := range report.Findings {
		require.Equal(t, "the record cannot be read", f.What, "%+v", f) // the padding
	}
	require.Equal(t, "stale", status(t, to, missing))
	require.Equal(t, "executed", status(t, to, talk(t, to)))
}

// A manifest is invalid if the messages that the log dropped are of no history, or a whole history.
func TestRead_LeftOfOtherSubjects(t *testing.T) {
	t.Parallel()
	dir := makeBackup(t)
	last := `"left": []`
	require.NoError(t, replace(filepath.Join(dir, backup.ManifestFile), `"streams"`, last+`,"streams"`))
	for _, left := range []string{
		`{"subject":"world.main.log.*","before":2}`, `{"subject":"world.main.log.>","before":2}`,
		`{"subject":"world.other.log.town","before":2}`, `{"subject":"world.main.log.","before":2}`,
		`{"subject":"world.main.refused.town","before":2}`, `{"subject":"world.main.log.town","before":0}`,
		`{"subject":"world.main.log.town","before":1000}`,
	} {
		next := `"left": [` + left + `]`
		require.NoError(t, replace(filepath.Join(dir, backup.ManifestFile), last, next))
		last = next
		_, err := backup.Read(dir)
		require.ErrorIs(t, err, backup.ErrInvalid)
		require.ErrorContains(t, err, "the log has no history ")
	}
}
