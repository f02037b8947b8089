package apply_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
)

func command(t *testing.T) *apply.Command {
	t.Helper()
	before := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: 3, TownID: `a town, "quoted"`,
		SideQuests: []town.SideQuest{}, Projects: []town.Project{{ID: "wall", Name: "Wall",
			Status: town.Planning}},
	})
	h, err := handoff.New(handoff.Proposal{
		SnapshotHash: before.Hash, DecisionEpoch: 3, Type: handoff.AdvanceProject, ActorID: "ada",
		TownID: `a town, "quoted"`, Reason: "because", Args: map[string]string{"projectId": "wall"},
	})
	require.NoError(t, err)
	after, reason := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	require.Empty(t, reason)
	return apply.NewCommand(h, "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", before, after)
}

func TestCommand_Wire(t *testing.T) {
	t.Parallel()
	c := command(t)
	sent := time.Date(2026, 2, 16, 10, 0, 0, 999_999, time.UTC)
	c.Deadline = sent.Add(2500 * time.Millisecond).In(time.FixedZone("", 3600))
	data, err := c.MarshalWire(sent)
	require.NoError(t, err)
	got, err := apply.ParseCommand(data, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, int64(2499), got.TimeoutMs)
	require.Equal(t, "wall", got.Argument())
	require.Equal(t, int64(4), got.ExpectedSnapshot.Day)
	want := *c
	want.Deadline, want.TimeoutMs = time.Date(2026, 2, 16, 10, 0, 2, 500_000_000, time.UTC),
		got.TimeoutMs
	require.Equal(t, &want, got)
	late, err := c.MarshalWire(sent.Add(time.Hour))
	require.NoError(t, err)
	got, err = apply.ParseCommand(late, schemas.Limits{})
	require.NoError(t, err)
	require.Zero(t, got.TimeoutMs, "never below zero")
}

func TestAnswer_Wire(t *testing.T) {
	t.Parallel()
	c := command(t)
	for _, a := range []apply.GameAnswer{
		apply.Done(c), apply.Refuse(c, "PROTECTED_AREA", "Spawn is protected.", true),
		apply.Later(c, apply.Busy, 200*time.Millisecond), apply.Later(c, apply.InProgress, 0),
	} {
		data, err := a.MarshalWire()
		require.NoError(t, err)
		got, err := apply.ParseAnswer(data, c.ApplyID, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
}

// An answer without a reason has one, null is absent, and a bad snapshot, list of artifacts or embodiment does
// not hide that the command was applied: its user validates it. An invalid answer is refused by the path of its
// first violation.
func TestParseAnswer(t *testing.T) {
	t.Parallel()
	c := command(t)
	other := "handoff_" + handoff.Hash([]byte("another"))
	for _, a := range []struct {
		version, applyID, members string
		want                      apply.GameAnswer
		invalid                   string
	}{
		{"1", c.ApplyID, `"refused","ofItsOwn":1`,
			apply.Refuse(c, apply.ReasonUnspecified, "", false), ""},
		{"1", c.ApplyID, `"applied","snapshot":{"day":-1}`, apply.GameAnswer{
			SchemaVersion: apply.AnswerVersion, ApplyID: c.ApplyID, Status: apply.Applied,
			Snapshot: []byte(`{"day":-1}`)}, ""},
		{"1", c.ApplyID, `"applied","snapshot":7,"artifacts":{},"embodiment":[]`, apply.GameAnswer{
			SchemaVersion: apply.AnswerVersion, ApplyID: c.ApplyID, Status: apply.Applied,
			Snapshot: []byte(`7`), Artifacts: []byte(`{}`), Embodiment: []byte(`[]`)}, ""},
		{"1", c.ApplyID, `"applied","snapshot":null,"artifacts":null,"embodiment":null,"message":null`,
			apply.Done(c), ""},
		{"1", c.ApplyID, `"refused","reasonCode":null,"message":null,"retryable":null,"retryAfterMs":null`,
			apply.Refuse(c, apply.ReasonUnspecified, "", false), ""},
		{"1", other, `"applied"`, apply.GameAnswer{}, "/applyId"},
		{"1", c.ApplyID, `"done"`, apply.GameAnswer{}, "/status"},
		{"2", c.ApplyID, `"applied"`, apply.GameAnswer{}, "/schemaVersion"},
		{"1", c.ApplyID, `"busy","retryAfterMs":-1`, apply.GameAnswer{}, "/retryAfterMs"},
		{"1", c.ApplyID, `"refused","reasonCode":"no"`, apply.GameAnswer{}, "/reasonCode"},
	} {
		body := `{"schemaVersion":"command-applied.v` + a.version + `","applyId":"` + a.applyID +
			`","status":` + a.members + `}`
		got, err := apply.ParseAnswer([]byte(body), c.ApplyID, schemas.Limits{})
		require.Equal(t, a.want, got, body)
		if a.invalid == "" {
			require.NoError(t, err, body)
			continue
		}
		var invalid *schemas.ValidationError
		require.ErrorAs(t, err, &invalid, body)
		require.Equal(t, a.invalid, invalid.Violations[0].Path, body)
	}
}
