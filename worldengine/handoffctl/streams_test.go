package handoffctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/tool/deadletters"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestDeadLetters_ListAndShow(t *testing.T) {
	c := onlineWith(t, engine.Config{Outbox: engine.OutboxConfig{Enabled: true}})
	assert.Contains(t, c.ok("deadletter", "list"), "\nnone\n")
	assert.Equal(t, exitUsage, c.run("deadletter", "show", "1").status)
	js := c.world.Streams()
	_, err := js.CreateStream(t.Context(), outbox.DeadLetterConfig("main", 1))
	require.NoError(t, err)
	for part, body := range []string{`{"a": 1}`, "\x00\xff"} {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: layout.DeadLetterSubject("main", "WORLD_main_RUNEVENTS", "7",
				string(rune('0'+part))), Data: []byte(body),
			Header: nats.Header{
				layout.LogSeqHeader: {"7"}, layout.LogPartHeader: {string(rune('0' + part))},
				layout.DeadLetterReasonHeader: {"it is too large"},
				layout.OriginalSubjectHeader:  {"runevents.v2.main.x.y"},
				layout.OriginalSizeHeader:     {"9000000"},
			},
		})
		require.NoError(t, err)
	}
	table := c.ok("deadletter", "list")
	assert.Regexp(t, `(?m)^1 +\S+Z +WORLD_main_RUNEVENTS +7 +0 +it is too large$`, table)
	assert.Regexp(t, `(?m)^2 +\S+Z +WORLD_main_RUNEVENTS +7 +1 +it is too large$`, table)
	assert.Len(t, decode[map[string][]deadletters.Letter](t,
		c.ok("deadletter", "list", "-o", "json"))["letters"], 2)
	text := c.ok("deadletter", "show", "1")
	assert.Regexp(t, `(?m)^log +sequence 7, part 0$`, text)
	assert.Regexp(t, `(?m)^subject +runevents\.v2\.main\.x\.y$`, text)
	assert.Regexp(t, `(?m)^size +9000000 bytes`, text)
	assert.Regexp(t, `(?m)^body +\{"a": 1\}$`, text)
	assert.Equal(t, "\x00\xff", c.ok("deadletter", "show", "2", "-o", "raw"))
	assert.Equal(t, `"\u0000�"`,
		string(decode[deadletters.Letter](t, c.ok("deadletter", "show", "2", "-o", "json")).Body))
	assert.Equal(t, exitUsage, c.run("deadletter", "show", "3").status)
	assert.Equal(t, exitUnavailable, c.run("deadletter", "list", "--world", "nowhere").status)
}

// Letters whose cause is removed come onto the bus, and their alerts are acknowledged; a letter whose
// event the log does not have stays.
func TestDeadLetters_Replay(t *testing.T) {
	c := onlineWith(t, engine.Config{Outbox: engine.OutboxConfig{Enabled: true, Attempts: 1}})
	assert.Contains(t, c.ok("deadletter", "replay", "--all"), "\nnone\n")
	for _, wrong := range [][]string{{}, {"1", "--all"}, {"x"}, {"1"}} {
		assert.Equal(t, exitUsage, c.run(append([]string{"deadletter", "replay"},
			wrong...)...).status, "%q", wrong)
	}
	js := c.world.Streams()
	limit := func(most int32) {
		stream, err := js.Stream(t.Context(), wire.EventStream("main"))
		require.NoError(t, err)
		config := stream.CachedInfo().Config
		config.MaxMsgSize = most
		_, err = js.UpdateStream(t.Context(), config)
		require.NoError(t, err)
	}
	count := func() int {
		return len(decode[map[string][]deadletters.Letter](t,
			c.ok("deadletter", "list", "-o", "json"))["letters"])
	}
	require.Eventually(t, func() bool { // the bus is opened in the background
		_, err := js.Stream(t.Context(), wire.EventStream("main"))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	limit(100)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	require.Eventually(t, func() bool { // the alert about a letter is stored after the letter
		alerts, err := c.world.Stream(layout.AlertStream("main")).Info(t.Context())
		return err == nil && alerts.State.Msgs == 10 && count() == 10
	}, time.Minute, 50*time.Millisecond)
	gone := layout.DeadLetterSubject("main", wire.EventStream("main"), "9000", "0")
	_, err := js.Publish(t.Context(), gone, nil)
	require.NoError(t, err)
	limit(-1)

	got := c.run("deadletter", "replay", "3", "11", "-o", "json")
	require.Equal(t, exitFailed, got.status, got.err)
	assert.Contains(t, got.err, "1 of 2 dead letters stay")
	letters := decode[map[string][]deadletters.Replayed](t, got.out)["letters"]
	require.Len(t, letters, 2)
	assert.Equal(t, []any{uint64(3), true, 1}, []any{letters[0].Number, letters[0].Replayed,
		letters[0].AlertsAcknowledged})
	assert.Equal(t, deadletters.Replayed{Number: 11, Subject: gone}, letters[1])
	assert.Equal(t, 10, count())

	got = c.run("deadletter", "replay", "--all")
	assert.Equal(t, exitFailed, got.status, got.err)
	assert.Regexp(t, `(?m)^10 +yes +1$`, got.out)
	assert.Regexp(t, `(?m)^11 +no +0$`, got.out)
	assert.Equal(t, 1, count())
	status := c.run("status").out
	assert.Contains(t, status, "none open, and 10 acknowledged")
	assert.Regexp(t, `(?m)^bus +at \d+ of \d+$`, status)
}

// A shorter history that would discard commits is refused with their number, and nothing is changed.
func TestSettings_Discard(t *testing.T) {
	c := online(t)
	js := c.world.Streams()
	_, err := js.CreateStream(t.Context(),
		worldsettings.StreamConfig("other", worldsettings.Default(), 1))
	require.NoError(t, err)
	for range 1003 {
		_, err = js.PublishAsync(layout.LogSubject("other", "busy"), []byte("{}"))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	settings := func(args ...string) []string {
		return append([]string{"--world", "other", "world", "settings"}, args...)
	}
	c.fails(exitFailed, "nothing is changed, since it would discard 3 messages of "+
		"WORLD_other_LOG (history-per-town)", settings("set", "history-per-town=1000")...)
	assert.Regexp(t, `history-per-town +10000\n`, c.ok(settings("get")...))
	assert.Regexp(t, `history-per-town +1000\n`,
		c.ok(settings("set", "history-per-town=1000", "--discard-history")...))
}

func TestFsck_Index(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	dir := filepath.Join(c.world.Config.Embedded.Data, "index", "main")
	require.Eventually(t, func() bool { // the server makes it a moment later
		_, err := os.Stat(dir)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	assert.Contains(t, c.ok("fsck", "--index", dir), "nothing is wrong")
	older, err := os.ReadFile(filepath.Join(dir, "rows"))
	require.NoError(t, err)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	copied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(copied, "rows"), older, 0o600))
	behind := c.run("fsck", "--index", copied)
	assert.Equal(t, exitFailed, behind.status)
	assert.Contains(t, behind.out, "the index lacks a row")
	assert.Contains(t, behind.out, "to do about findings in the index: ")
	assert.NotContains(t, behind.out, "findings in the log")
}

// An unreadable message is named by its town, or by its subject if that has no town.
func TestBackup_Unreadable(t *testing.T) {
	t.Parallel()
	err := incomplete(&backup.Manifest{Unreadable: []fsck.Unreadable{
		{Town: "fort", Subject: "world.main.log.fort", Sequence: 7},
		{Subject: "world.main.control", Sequence: 9},
	}})
	assert.ErrorContains(t, err, ": fort (log sequence 7), world.main.control (log sequence 9)")
}

// A dead letter is a problem, and an alert of a storage that has recovered is none.
func TestStatus_Trouble(t *testing.T) {
	c := online(t)
	js := c.world.Streams()
	for _, code := range []runevents.AlertCode{runevents.StorageFailed, runevents.StorageRecovered} {
		alert := runevents.Alert{Code: code, Severity: protocol.LookupAlert(code).Severity,
			At: runevents.Timestamp(time.Now()), Message: "Told."}
		_, err := js.Publish(t.Context(), wire.AlertSubject("main", string(code)),
			[]byte(marshal(t, alert)))
		require.NoError(t, err)
	}
	_, err := js.CreateStream(t.Context(), outbox.DeadLetterConfig("main", 1))
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), layout.DeadLetterSubject("main", "RUNEVENTS", "7", "0"),
		[]byte(`{}`))
	require.NoError(t, err)
	got := c.run("status", "-o", "json")
	assert.Equal(t, exitFailed, got.status)
	problems := decode[messages.WorldReport](t, got.out).Problems
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0], "1 dead letter: ")
	c.ok("alerts", "ack", "2")
	assert.NotContains(t, c.run("status").out, "problem  alert", "an acknowledged recovery is one too")
}

// status exits 1 if a server judges nothing because its log was replaced.
func TestStatus_LogLost(t *testing.T) {
	c := online(t)
	js := c.world.Streams()
	log, err := js.Stream(t.Context(), layout.LogStream("main"))
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), log.CachedInfo().Config.Name))
	_, err = js.CreateStream(t.Context(), log.CachedInfo().Config)
	require.NoError(t, err)
	_, _, err = c.world.Engine().Status().CatchUp(t.Context())
	require.NoError(t, err, "which sees the end of the log")
	var got outcome
	require.Eventually(t, func() bool { // the alert is stored after the loss was noticed
		got = c.run("status")
		return strings.Contains(got.out, ", LOG_LOST of ")
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^problem +the server \S+ judges nothing: the log has lost `, got.out)
	assert.Regexp(t, `(?m)^problem +alert \d+, LOG_LOST of `, got.out)
}

// A backup of several worlds has a directory for each. A world that cannot be copied keeps no other from
// being copied.
func TestBackup_Worlds(t *testing.T) {
	t.Parallel()
	c := cliOf(t, serve(t, servertest.Open, servertest.Worlds("main", "lobby")))
	dir := t.TempDir()
	out := c.ok("backup", "--worlds", "all", dir)
	for _, world := range []string{"lobby", "main"} {
		manifest, err := backup.ReadWorld(filepath.Join(dir, world), world)
		require.NoError(t, err)
		require.Equal(t, world, manifest.World)
		require.Contains(t, out, "handoffd restore --world "+world+" "+filepath.Join(dir, world))
	}
	dir = t.TempDir()
	got := c.run("backup", "--worlds", "lobby,absent", "-o", "json", dir)
	require.Equal(t, exitFailed, got.status, got.err)
	var report struct{ Worlds []copied }
	require.NoError(t, json.Unmarshal([]byte(strings.SplitN(got.out, "\n", 2)[0]), &report))
	require.Contains(t, report.Worlds[0].Error, "there is no world absent on this server")
	require.Equal(t, "lobby", report.Worlds[1].Manifest.World)
	require.Contains(t, got.err, "no whole backup was made of 1 world: absent")
	require.Equal(t, exitUsage, c.run("backup", "--worlds", "a.b", dir).status)
}

// status --worlds exits 1 if a world needs attention, and says which and why.
func TestStatus_WorldInNeed(t *testing.T) {
	t.Parallel()
	c := cliOf(t, serve(t, servertest.Open, servertest.Worlds("main", "lobby")))
	require.Contains(t, c.ok("status", "--worlds"), "lobby  good")
	alert := runevents.Alert{Code: runevents.StorageFailed, Severity: runevents.P1,
		At: runevents.Timestamp(time.Now()), Message: "No room."}
	_, err := c.world.Streams().Publish(t.Context(), wire.AlertSubject("lobby", string(alert.Code)),
		[]byte(marshal(t, alert)))
	require.NoError(t, err)
	got := c.run("status", "--worlds")
	require.Equal(t, exitFailed, got.status)
	require.Contains(t, got.err, "1 world of 2 need attention: lobby")
	require.Regexp(t, `(?m)^lobby +needs attention `, got.out)
	require.Regexp(t, `(?m)^main +good `, got.out)
	require.Regexp(t, `(?m)^lobby: alert 1, STORAGE_FAILED of .*: No room\.$`, got.out)
}
