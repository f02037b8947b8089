package systemtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/town"
)

// A town that an earlier server stored without a title and a name is served and judged, before and
// after a restart; fsck has a note about it until a put mends it.
func TestFsckNotesWhatAgentsRefuse(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	s := *w.found("t").Snapshot
	require.Empty(t, w.fsck(fsck.Options{}).Notes)
	s.SideQuests = []town.SideQuest{{ID: "q", Title: ""}}
	s.Projects = []town.Project{{ID: "p", Name: "", Progress: 0.5, Status: town.Active}}
	s.Day++
	nameless := town.NewState(&s)
	w.put(nameless, w.now("t").State.Hash)
	w.send(proposal(nameless, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
	w.close()
	w.open()
	at := w.now("t").State
	require.Equal(t, []string{"/sideQuests/0/title", "/projects/0/name"}, at.Nameless())
	w.send(proposal(at, handoff.AdvanceProject, "p"), handoff.Executed)
	report := w.fsck(fsck.Options{})
	require.True(t, report.Clean(), "%+v", report.Findings)
	require.Len(t, report.Notes, 1)
	require.Contains(t, report.Notes[0],
		`town "t": its state has an empty /sideQuests/0/title, /projects/0/name;`)

	mended := *w.now("t").State.Snapshot
	mended.SideQuests, mended.Projects = nil, nil
	w.put(town.NewState(&mended), w.now("t").State.Hash)
	require.Empty(t, w.fsck(fsck.Options{}).Notes)
}
