package apply_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town"
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
	for _, a := range []apply.Answer{
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

func TestParseAnswer_NoReason(t *testing.T) {
	t.Parallel()
	c := command(t)
	a, err := apply.ParseAnswer([]byte(`{"schemaVersion":"command-applied.v1","applyId":"`+
		c.ApplyID+
		`","status":"refused","ofItsOwn":1}`), c.ApplyID, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, apply.ReasonUnspecified, a.ReasonCode)
	require.False(t, a.Retryable)
}

// A bad snapshot in an answer does not hide that the command was applied: its user validates it.
func TestParseAnswer_BadSnapshot(t *testing.T) {
	t.Parallel()
	c := command(t)
	a, err := apply.ParseAnswer([]byte(`{"schemaVersion":"command-applied.v1","applyId":"`+
		c.ApplyID+
		`","status":"applied","snapshot":{"day":-1}}`), c.ApplyID, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, apply.Applied, a.Status)
	require.JSONEq(t, `{"day":-1}`, string(a.Snapshot))
}

func TestParseAnswer_Invalid(t *testing.T) {
	t.Parallel()
	c := command(t)
	other := "handoff_" + handoff.Hash([]byte("another"))
	for want, body := range map[string]string{
		"/applyId": `{"schemaVersion":"command-applied.v1","applyId":"` + other +
			`","status":"applied"}`,
		"/status": `{"schemaVersion":"command-applied.v1","applyId":"` + c.ApplyID +
			`","status":"done"}`,
		"/schemaVersion": `{"schemaVersion":"command-applied.v2","applyId":"` + c.ApplyID +
			`","status":"applied"}`,
		"/retryAfterMs": `{"schemaVersion":"command-applied.v1","applyId":"` + c.ApplyID +
			`","status":"busy","retryAfterMs":-1}`,
		"/reasonCode": `{"schemaVersion":"command-applied.v1","applyId":"` + c.ApplyID +
			`","status":"refused","reasonCode":"no"}`,
		"": `applied`,
	} {
		_, err := apply.ParseAnswer([]byte(body), c.ApplyID, schemas.Limits{})
		var invalid *schemas.ValidationError
		require.True(t, errors.As(err, &invalid), body)
		require.Equal(t, want, invalid.Violations[0].Path, body)
	}
}
