package server_test

import (
	"archive/zip"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
)

var rewriteFormat = flag.Bool("rewrite-format", false,
	"write a data directory, a backup and their contents to testdata/format anew: after a change of "+
		"the formats that ends the compatibility with stored data")

// formatConfig is for a world whose data never expires.
func formatConfig(data string) func(*server.Config) {
	return func(c *server.Config) {
		once(c)
		c.Embedded.Data = data
		c.Engine.Storage.AppendedRetention = 100 * 365 * 24 * time.Hour
		c.Engine.ApprovalTimeout = 100 * 365 * 24 * time.Hour
		c.Engine.RequireApproval = string(handoff.PlanSalvage)
	}
}

// TestFormat opens a data directory and a backup that an earlier server wrote, testdata/format: from
// them this one reads the same towns, results and events, fsck finds nothing, and every handoff is a
// duplicate still.
func TestFormat(t *testing.T) {
	t.Parallel()
	if *rewriteFormat {
		writeFormat(t)
		return
	}
	want, err := os.ReadFile("testdata/format/world.txt")
	require.NoError(t, err)
	data, err := os.ReadFile("testdata/format/handoffs.json")
	require.NoError(t, err)
	var accepted []json.RawMessage
	require.NoError(t, json.Unmarshal(data, &accepted))
	for _, name := range []string{"data", "backup"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			unpack(t, name, dir)
			if name == "backup" {
				from := dir
				dir = t.TempDir()
				_, err := server.Restore(t.Context(), server.Config{
					Embedded: embedded.Config{Data: dir},
					Logger:   quiet(),
				}, from, backup.RestoreOptions{World: "main"})
				require.NoError(t, err)
			}
			c := newWorld(t, formatConfig(dir))
			require.Equal(t, string(want), c.contents())
			for _, body := range accepted {
				require.Equal(t, handoff.Duplicate, c.send(body).result.Status)
			}
			report, err := fsck.Run(t.Context(), c.streams().Conn(), "main", fsck.Options{})
			require.NoError(t, err)
			require.Empty(t, report.Findings)
			c.requireFacts()
		})
	}
}

// requireFacts requires that each record of the log has the facts of its kind.
func (c *client) requireFacts() {
	c.t.Helper()
	facts, kinds := logtest.Facts{}, map[machine.Kind]bool{}
	err := commitlog.ScanMessages(c.t.Context(), c.log(), 1<<20, func(msg *jetstream.RawStreamMsg) error {
		rec, err := records.Read(msg.Data)
		require.NoError(c.t, err)
		facts.Require(c.t, msg.Subject, rec)
		kinds[rec.Kind] = true
		return nil
	})
	require.NoError(c.t, err)
	require.GreaterOrEqual(c.t, len(kinds), 10, "kinds in the log")
}

// contents renders the towns of a world, and the events of its runs.
func (c *client) contents() string {
	c.t.Helper()
	var b strings.Builder
	for _, t := range c.list() {
		fmt.Fprintf(&b, "town %s day %d %s\n", t.TownID, t.DecisionEpoch, t.SnapshotHash)
	}
	page := call[struct{ Runs []runevents.Snapshot }](c, "run.list",
		members{"order": "oldest", "limit": 200})
	for i := range page.Runs {
		runID := page.Runs[i].RunID
		fmt.Fprintf(&b, "run %s %s\n", runID, page.Runs[i].Status)
		for _, e := range c.events(runID) {
			fmt.Fprintf(&b, "  %d %s %s %d %s %s %s\n", e.RunSeq, e.EventType, e.StepID,
				e.LogicalAttemptID, e.EmittedAt, e.EventID, e.Payload)
		}
	}
	return b.String()
}

// writeFormat makes a world in which each kind of record stands, and stores it.
func writeFormat(t *testing.T) {
	dir := t.TempDir()
	c := newWorld(t, formatConfig(dir))
	var accepted []json.RawMessage
	accept := func(body []byte) outcome {
		got := c.send(body)
		require.True(t, got.result.Accepted, "%s", got.result.ReasonCode)
		accepted = append(accepted, body)
		return got
	}
	wall := func(id string) []byte { return c.wall(c.town(id)) }
	// The rules: executed, failed, stale, duplicate, unknown; a patch; a pause; approvals.
	c.putTown("local")
	first := wall("local")
	accept(first)
	c.send(first)
	c.send(marshalled(t, propose(c.putTown("elsewhere"), handoff.AdvanceProject, "gate")))
	call[townReply](c.client, "town.patch", members{"townId": "local",
		"expectedSnapshotHash": c.town("local").SnapshotHash, "patch": members{"day": 40}})
	c.signal("control.pause", members{"townId": "local", "reason": "repairs"})
	waits := c.sendLater(wall("local"))
	c.paused("local", 1)
	c.signal("control.resume", members{"townId": "local"})
	<-waits
	c.signal("control.pause", members{"reason": "all"})
	c.signal("control.resume", members{})
	mission := c.salvage(c.town("local"), "dread")
	asked := c.send(mission)
	require.Equal(t, handoff.ReasonApprovalRequired, asked.result.ReasonCode)
	c.decide(members{"townId": "local", "handoffId": asked.result.HandoffID,
		"decision": "approve", "actorId": "ada", "reason": "it helps"})
	accept(mission)
	// A game: unreached and tried again, refused, cancelled by force; what others append.
	c.putTown("game", "apply", apply.Plugin)
	unreached := c.unreached(wall("game"))
	host(t, c.Server, func(command *apply.Command, _ int) (apply.GameAnswer, bool) {
		if command.Type == handoff.TalkToTownsfolk {
			return apply.Refuse(command, "NO", "no", false), true
		}
		return apply.Done(command), true
	})
	c.retry(unreached.runID)
	accept(c.talk(c.town("game")))
	c.putTown("gone")
	call[struct{ TownID string }](c.client, "town.remove", townRequest("gone"))
	c.Stop()
	require.NoError(t, os.Remove(filepath.Join(dir, embedded.OperatorKeyFile)))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "index")))
	archive(t, "data", dir)

	c.start()
	saved := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Create(t.Context(), c.streams().Conn(), saved, backup.Options{World: "main"})
	require.NoError(t, err)
	archive(t, "backup", saved)
	require.NoError(t, os.WriteFile("testdata/format/world.txt", []byte(c.contents()), 0o644))
	require.NoError(t, os.WriteFile("testdata/format/handoffs.json", bodyOf(t, accepted), 0o644))
}

// archive stores a directory in testdata/format.
func archive(t *testing.T, name, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll("testdata/format", 0o755))
	file, err := os.Create("testdata/format/" + name + ".zip")
	require.NoError(t, err)
	w := zip.NewWriter(file)
	require.NoError(t, w.AddFS(os.DirFS(dir)))
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
}

// unpack makes a directory of one that testdata/format has.
func unpack(t *testing.T, name, dir string) {
	t.Helper()
	r, err := zip.OpenReader("testdata/format/" + name + ".zip")
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(dir, r))
	require.NoError(t, r.Close())
}
