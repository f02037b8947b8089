package backup_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// restore restores a world from a backup.
func restore(
	ctx context.Context, nc *nats.Conn, dir string, options backup.RestoreOptions,
) (*backup.RestoreResult, error) {
	m, err := backup.ReadWorld(dir, options.World)
	if err != nil {
		return nil, err
	}
	return m.Restore(ctx, nc, dir, options)
}

// serve serves a world in the NATS of nc until the test, or Stop, ends it.
func serve(t testing.TB, nc *nats.Conn, config engine.Config) *servertest.World {
	t.Helper()
	return servertest.Start(t, servertest.Joining(nc), servertest.Frontier, servertest.Engine(config))
}

// requireHalfRestored asserts that nobody serves the world in the NATS of nc.
func requireHalfRestored(t testing.TB, nc *nats.Conn) {
	t.Helper()
	_, err := server.Start(t.Context(), servertest.Configure(servertest.Joining(nc)))
	require.ErrorIs(t, err, commitlog.ErrHalfRestored)
}

// makeBackup makes a backup of the example world.
func makeBackup(t testing.TB) string {
	t.Helper()
	nc, dir := natstest.Connect(t), filepath.Join(t.TempDir(), "backup")
	serve(t, nc, engine.Config{})
	_, err := backup.Create(t.Context(), nc, dir, backup.Options{})
	require.NoError(t, err)
	return dir
}

// writerLease is a lease's stream, which is in memory and in no backup.
var writerLease = "KV_" + layout.WriterBucket("main")

// streams returns the names and last sequences of all streams.
func streams(t testing.TB, nc *nats.Conn) map[string]uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	all := map[string]uint64{}
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		if info.Config.Name != writerLease {
			all[info.Config.Name] = info.State.LastSeq
		}
	}
	require.NoError(t, list.Err())
	return all
}

// commit changes a town n times.
func commit(t testing.TB, nc *nats.Conn, n int) {
	t.Helper()
	for range n {
		var at struct{ SnapshotHash string }
		ask(t, nc, "town.get", `{"townId":"town-threatened"}`, &at)
		ask(t, nc, "town.patch", fmt.Sprintf(
			`{"townId":"town-threatened","patch":{},"expectedSnapshotHash":%q}`, at.SnapshotHash),
			&at)
	}
}

func ask(t testing.TB, nc *nats.Conn, verb, body string, reply any) {
	t.Helper()
	msg, err := nc.Request(wire.Subject("main", verb), []byte(body), time.Minute)
	require.NoError(t, err)
	require.Empty(t, msg.Header.Get("Nats-Service-Error-Code"), "%s", msg.Data)
	require.NoError(t, json.Unmarshal(msg.Data, reply))
}

// An incomplete backup is refused with the file and the reason, before anything is restored.
func TestRestore_DamagedBackup(t *testing.T) {
	t.Parallel()
	whole := makeBackup(t)
	const manifest = "manifest.json"
	log := filepath.Join(layout.LogStream("main"), "stream.arc.s2")
	edit := func(old, with string) func(string) error {
		return func(path string) error { return replace(path, old, with) }
	}
	cut := func(size int64) func(string) error {
		return func(path string) error { return os.Truncate(path, size) }
	}
	for name, c := range map[string]struct {
		file   string
		damage func(path string) error
		says   string
	}{
		"no manifest":     {manifest, os.Remove, "has no manifest.json, which is written last"},
		"half a manifest": {manifest, cut(700), "manifest.json: "},
		"a stream more": {manifest, edit("WORLD_main_ALERTS", "../WORLD_main_ALERTS"),
			"manifest.json: stream 2 is not WORLD_main_ALERTS"},
		"a manifest of something else": {manifest, edit("worldengine-backup.v", "other-backup.v"),
			`the format is "other-backup.v`},
		"a file is missing": {log, os.Remove, log + ": no such file"},
		"a file is cut off": {log, cut(1000), log + " has 1000 bytes"},
		"a bit is flipped":  {log, flip, log + " was altered"},
		"a setting is changed": {"WORLD_main_LOG/backup.json", edit(`"max_msgs_per_subject":10000`,
			`"max_msgs_per_subject":10001`), "backup.json was altered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, nc := copyOf(t, whole), natstest.Connect(t)
			require.NoError(t, c.damage(filepath.Join(dir, c.file)))
			_, err := restore(t.Context(), nc, dir, backup.RestoreOptions{})
			require.ErrorIs(t, err, backup.ErrInvalid)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, streams(t, nc))
		})
	}
}

// copyOf copies a backup, and returns the directory of the copy.
func copyOf(t testing.TB, whole string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
	return dir
}

// A backup of another format is refused for that, whatever else its manifest has.
func TestRestore_OtherFormat(t *testing.T) {
	t.Parallel()
	dir, nc := t.TempDir(), natstest.Connect(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"),
		[]byte(`{"format":"worldengine-backup.v1","world":"main","member":"of before"}`), 0o600))
	_, err := restore(t.Context(), nc, dir, backup.RestoreOptions{})
	require.ErrorIs(t, err, commitlog.ErrFormat)
	require.ErrorContains(t, err, "world main has format 1, and this one reads format "+
		commitlog.Format)
	require.Empty(t, streams(t, nc))
}

// If a restored stream does not have the manifest's number of messages, the restore fails with the
// stream's name, and nobody serves the world.
func TestRestore_CountsDiffer(t *testing.T) {
	t.Parallel()
	whole := makeBackup(t)
	m, err := backup.Read(whole)
	require.NoError(t, err)
	log := m.Streams[0]
	for name, c := range map[string]struct{ messages, lastSeq uint64 }{
		"a message more": {log.Messages + 1, log.LastSeq},
		"a message less": {log.Messages - 1, log.LastSeq},
		"another end":    {log.Messages, log.LastSeq + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, nc := copyOf(t, whole), natstest.Connect(t)
			const members = "\"lastSeq\": %d,\n      \"messages\": %d"
			require.NoError(t, replace(filepath.Join(dir, "manifest.json"), // the log is first
				fmt.Sprintf(members, log.LastSeq, log.Messages),
				fmt.Sprintf(members, c.lastSeq, c.messages)))
			_, err = restore(t.Context(), nc, dir, backup.RestoreOptions{})
			require.ErrorIs(t, err, backup.ErrRestore)
			require.ErrorContains(t, err, fmt.Sprintf("stream WORLD_main_LOG: the manifest names %d "+
				"messages up to sequence %d, and %d up to %d were restored", c.messages, c.lastSeq,
				log.Messages, log.LastSeq))
			requireHalfRestored(t, nc)
			_, err = restore(t.Context(), nc, whole, backup.RestoreOptions{})
			require.NoError(t, err)
		})
	}
}

// Messages that have expired since the backup are not missed.
func TestRestore_Expired(t *testing.T) {
	t.Parallel()
	dir := makeBackup(t)
	m, err := backup.Read(dir)
	require.NoError(t, err)
	s := &m.Streams[0]
	require.Positive(t, s.Messages)
	for _, c := range []struct {
		maxAge   time.Duration
		messages uint64
		ok       bool
	}{
		{0, s.Messages, true}, {0, s.Messages - 1, false}, {time.Hour, s.Messages - 1, false},
		{time.Nanosecond, s.Messages - 1, true}, {time.Nanosecond, 0, true},
		{time.Nanosecond, s.Messages + 1, false},
	} {
		err := backup.Compare(dir, s, c.maxAge, c.messages)
		require.Equal(t, c.ok, err == nil, "%+v: %v", c, err)
	}
}

// Events that others appended expire one by one: a restore does not miss them either.
func TestRestore_ExpiredEvents(t *testing.T) {
	t.Parallel()
	from, dir := natstest.Connect(t), filepath.Join(t.TempDir(), "backup")
	serve(t, from, engine.Config{})
	js, err := jetstream.New(from)
	require.NoError(t, err)
	for run := range 100 {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: logtest.AppendSubject(t, js, layout.RunSubject("main", fmt.Sprint(run))), Data: []byte("{}"),
			Header: nats.Header{jetstream.MsgTTLHeader: {"1s"}},
		})
		require.NoError(t, err)
	}
	_, err = backup.Create(t.Context(), from, dir, backup.Options{})
	require.NoError(t, err)
	log, err := js.Stream(t.Context(), layout.LogStream("main"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		left, err := commitlog.SubjectsOf(t.Context(), log, layout.RunSubject("main", "*"))
		return err == nil && len(left) == 0
	}, time.Minute, 50*time.Millisecond)
	_, err = restore(t.Context(), natstest.Connect(t), dir, backup.RestoreOptions{})
	require.NoError(t, err)
}

func replace(path, old, with string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Replace(string(data), old, with, 1)), 0o600)
}

func flip(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 1
	return os.WriteFile(path, data, 0o600)
}

// A backup of another world, or of one that exists, served or not, is refused and changes nothing.
func TestRestore_OverwritesNothing(t *testing.T) {
	t.Parallel()
	dir, nc := makeBackup(t), natstest.Connect(t)
	_, err := restore(t.Context(), nc, dir, backup.RestoreOptions{World: "other"})
	require.ErrorIs(t, err, backup.ErrOtherWorld)
	require.Empty(t, streams(t, nc))

	w := serve(t, nc, engine.Config{})
	commit(t, nc, 3)
	before := streams(t, nc)
	_, err = restore(t.Context(), nc, dir, backup.RestoreOptions{})
	require.ErrorIs(t, err, backup.ErrWorldExists)
	require.ErrorContains(t, err, "a server serves")
	require.ErrorContains(t, err, "into an empty data directory or another NATS, or")
	w.Stop()
	_, err = restore(t.Context(), nc, dir, backup.RestoreOptions{})
	require.ErrorIs(t, err, backup.ErrWorldExists)
	require.ErrorContains(t, err, layout.LogStream("main"))
	require.ErrorContains(t, err, "into an empty data directory or another NATS, or")
	require.Equal(t, before, streams(t, nc))
}

// A world is restored under another name, beside the one that was copied, which stays as it is. It has the
// same towns, results and alerts, fsck finds nothing wrong, and a server serves it.
func TestRestore_AnotherName(t *testing.T) {
	t.Parallel()
	nc, dir := natstest.Connect(t), filepath.Join(t.TempDir(), "backup")
	w := serve(t, nc, engine.Config{})
	commit(t, nc, 3)
	var made, again messages.Town
	ask(t, nc, "town.get", `{"townId":"town-threatened"}`, &made)
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: made.TownID, Priority: 0.8,
		Reason: "low", Args: map[string]string{"projectId": "wall-perimeter"},
		SnapshotHash: made.SnapshotHash, DecisionEpoch: made.DecisionEpoch,
	})
	require.NoError(t, err)
	agent := &client.Client{Conn: nc, World: "main"}
	first, err := agent.Send(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, first.Result.Status)
	ask(t, nc, "town.get", `{"townId":"town-threatened"}`, &made)
	raise(t, nc, "main")
	_, err = backup.Create(t.Context(), nc, dir, backup.Options{})
	require.NoError(t, err)
	w.Stop()
	before := streams(t, nc)
	_, err = restore(t.Context(), nc, dir, backup.RestoreOptions{As: "main"})
	require.ErrorIs(t, err, backup.ErrWorldExists)
	require.ErrorContains(t, err, "--as")
	_, err = restore(t.Context(), nc, dir, backup.RestoreOptions{As: "copy"})
	require.NoError(t, err)
	after := streams(t, nc)
	for name, seq := range before {
		require.Equal(t, seq, after[name], name)
	}
	require.Equal(t, before["WORLD_main_ALERTS"], after["WORLD_copy_ALERTS"])
	require.NotZero(t, after["WORLD_copy_ALERTS"])

	serve(t, nc, engine.Config{World: "copy"})
	agent = &client.Client{Conn: nc, World: "copy"}
	_, err = agent.Ask(t.Context(), wire.TownGet, map[string]string{"townId": made.TownID}, &again)
	require.NoError(t, err)
	require.Equal(t, made.SnapshotHash, again.SnapshotHash)
	second, err := agent.Send(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, handoff.Duplicate, second.Result.Status, "the key is used in the copy too")
	report, err := fsck.Run(t.Context(), nc, "copy", fsck.Options{})
	require.NoError(t, err)
	require.True(t, report.Clean(), "%+v", report.Findings)
}

// raise puts an alert into the stream of a world.
func raise(t testing.TB, nc *nats.Conn, world string) {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), wire.AlertSubject(world, "CODE"), []byte("{}"))
	require.NoError(t, err)
}

// Until a restore has finished nobody serves the world. Run again, it begins anew and finishes.
func TestRestore_Interrupted(t *testing.T) {
	t.Parallel()
	dir, nc := makeBackup(t), natstest.Connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := restore(ctx, nc, dir, backup.RestoreOptions{OnStream: func(s backup.Stream) {
		if s.Name == layout.LogStream("main") {
			cancel()
		}
	}})
	require.ErrorIs(t, err, backup.ErrRestore)
	require.ErrorIs(t, err, context.Canceled)
	requireHalfRestored(t, nc)

	restored, err := restore(t.Context(), nc, dir, backup.RestoreOptions{})
	require.NoError(t, err)
	want := map[string]uint64{}
	for _, s := range restored.Manifest.Streams {
		want[s.Name] = s.LastSeq
	}
	want[layout.LogStream("main")]++ // the settings, which say that the world was restored
	require.Equal(t, want, streams(t, nc))
	serve(t, nc, engine.Config{})
	commit(t, nc, 1)
	report, err := fsck.Run(t.Context(), nc, "main", fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.EqualValues(t, 3, report.Counts.Towns)
}

// An interrupted backup leaves nothing, and none is made in a directory with files.
func TestCreate_Interrupted(t *testing.T) {
	t.Parallel()
	nc, dir := natstest.Connect(t), filepath.Join(t.TempDir(), "backup")
	_, err := backup.Create(t.Context(), nc, dir, backup.Options{})
	require.ErrorIs(t, err, commitlog.ErrNoWorld)
	require.NoDirExists(t, dir)
	serve(t, nc, engine.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err = backup.Create(ctx, nc, dir, backup.Options{OnProgress: func(string, int64) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o700))
	ctx, cancel = context.WithCancel(t.Context())
	_, err = backup.Create(ctx, nc, dir, backup.Options{OnProgress: func(string, int64) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.DirExists(t, dir, "it was there before")

	_, err = backup.Create(t.Context(), nc, dir, backup.Options{})
	require.NoError(t, err)
	_, err = backup.Create(t.Context(), nc, dir, backup.Options{})
	require.ErrorIs(t, err, backup.ErrDirectory)
	_, err = backup.Read(dir)
	require.NoError(t, err)
}

// If a town's whole history is replaced while it is copied, the copy may lack the town: the backup
// fails. One commit less, and it succeeds.
func TestCreate_Outrun(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	const history = 8
	serve(t, nc, engine.Config{Settings: worldsettings.Settings{HistoryPerTown: history}})
	backUp := func(commits int) error {
		var once sync.Once
		_, err := backup.Create(t.Context(), nc, t.TempDir(),
			backup.Options{OnProgress: func(string, int64) {
				once.Do(func() {
					commit(t, nc, commits)
					// others' commits do not harm
					ask(t, nc, "town.put", `{"snapshot":`+newTown(commits)+`}`, &struct{}{})
				})
			}})
		return err
	}
	require.NoError(t, backUp(history-1))
	err := backUp(history)
	require.ErrorIs(t, err, backup.ErrOverwritten)
	require.ErrorContains(t, err, "world.main.log.town-threatened got 8 commits")
}

func newTown(n int) string {
	return fmt.Sprintf(
		`{"schemaVersion":"snapshot.v1","townId":"town %d","day":0,"mission":null,"sideQuests":[],`+
			`"pressure":{"threat":0,"scarcity":0,"hope":0,"dread":0},"projects":[],"latestNetherEvent":null}`, n)
}

// A stream many times larger than the window comes back byte for byte, even if messages, and so
// chunks, are at most a few KB.
func TestRestore_LargeStream(t *testing.T) {
	t.Parallel()
	from, dir := natstest.Connect(t), t.TempDir()
	serve(t, from, engine.Config{})
	js, err := jetstream.New(from)
	require.NoError(t, err)
	const messages, size = 1000, 12 << 10
	for i := range messages {
		body := make([]byte, size)
		_, _ = rand.Read(body) // does not compress
		_, err := js.PublishAsync(wire.AlertSubject("main", fmt.Sprint("A", i%7)), body)
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	_, err = backup.Create(t.Context(), from, dir, backup.Options{})
	require.NoError(t, err)

	to := narrow(t, 16<<10)
	_, err = restore(t.Context(), to, dir, backup.RestoreOptions{})
	require.NoError(t, err)
	want, got := content(t, from), content(t, to)
	require.Len(t, want, messages)
	require.Equal(t, want, got)
}

// content returns sequence, time, subject and body of every alert.
func content(t testing.TB, nc *nats.Conn) (all []string) {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	s, err := js.Stream(t.Context(), layout.AlertStream("main"))
	require.NoError(t, err)
	require.NoError(t, commitlog.ScanMessages(t.Context(), s, nc.MaxPayload(),
		func(msg *jetstream.RawStreamMsg) error {
			all = append(all, fmt.Sprintf("%d %s %s %v %x", msg.Sequence, msg.Time, msg.Subject,
				msg.Header, msg.Data))
			return nil
		}))
	return all
}

// narrow starts a NATS that accepts messages up to a size.
func narrow(t testing.TB, maxPayload int32) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, func(o *natsserver.Options) { o.MaxPayload = maxPayload })
}

// The streams of a restored world keep their settings. The log gets an identity of its own: no writer of the
// other log appends to it.
func TestRestore_KeepsSettings(t *testing.T) {
	t.Parallel()
	from, to, dir := natstest.Connect(t), natstest.Connect(t), t.TempDir()
	serve(t, from, engine.Config{Settings: worldsettings.Settings{
		HistoryPerTown: 77, Compress: worldsettings.CompressAll,
	}})
	_, err := backup.Create(t.Context(), from, dir, backup.Options{})
	require.NoError(t, err)
	_, err = restore(t.Context(), to, dir, backup.RestoreOptions{})
	require.NoError(t, err)
	serve(t, to, engine.Config{})
	before, after := configs(t, from), configs(t, to)
	log := layout.LogStream("main")
	require.NotEqual(t, commitlog.Identity(before[log]), commitlog.Identity(after[log]))
	require.Equal(t, unidentified(before), unidentified(after))
}

// A restored log knows that its history was shorter before, so that full histories may have lost
// their beginning.
func TestRestore_KeepsMinHistory(t *testing.T) {
	t.Parallel()
	from, to, dir := natstest.Connect(t), natstest.Connect(t), t.TempDir()
	serve(t, from, engine.Config{Settings: worldsettings.Settings{HistoryPerTown: 77}})
	js, err := jetstream.New(from)
	require.NoError(t, err)
	_, err = worldsettings.Change(t.Context(), js, "main",
		worldsettings.Settings{HistoryPerTown: 99}, false)
	require.NoError(t, err)
	_, err = backup.Create(t.Context(), from, dir, backup.Options{})
	require.NoError(t, err)
	_, err = restore(t.Context(), to, dir, backup.RestoreOptions{})
	require.NoError(t, err)
	restored, err := jetstream.New(to)
	require.NoError(t, err)
	log, err := commitlog.OpenReader(t.Context(), restored, "main")
	require.NoError(t, err)
	require.EqualValues(t, 99, log.Stream.CachedInfo().Config.MaxMsgsPerSubject)
	settings, err := worldsettings.Read(t.Context(), log)
	require.NoError(t, err)
	require.EqualValues(t, 77, settings.MinHistory)
	require.NotZero(t, settings.RestoredTo)
}

// unidentified takes the identity of the log out of configurations.
func unidentified(configs map[string]jetstream.StreamConfig) map[string]jetstream.StreamConfig {
	log := configs[layout.LogStream("main")]
	log.Subjects, log.SubjectTransform = nil, nil
	configs[log.Name] = log
	return configs
}

func configs(t testing.TB, nc *nats.Conn) map[string]jetstream.StreamConfig {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	all := map[string]jetstream.StreamConfig{}
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		if info.Config.Name != writerLease {
			info.Config.Metadata = nil // NATS's own
			all[info.Config.Name] = info.Config
		}
	}
	require.NoError(t, list.Err())
	require.Len(t, all, 2)
	return all
}

// Every stream of a world is in a backup, except the bus, which is derived from the log.
func TestBackupStreams(t *testing.T) {
	t.Parallel()
	names := []string{
		wire.EventStream("main"), layout.DeadLetterStream("main"),
	}
	for _, config := range backup.BackupStreams("main", worldsettings.Settings{}, 1) {
		names = append(names, config.Name)
	}
	require.ElementsMatch(t, layout.Streams("main"), names)
}
