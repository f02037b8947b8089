package approvals_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

// decider returns what takes people's decisions, which count for a minute.
func (a *asking) decider() *approvals.Decider {
	return &approvals.Decider{
		Log: a.Log, Now: func() time.Time { return a.now }, Timeout: time.Minute,
		Commit: func(
			ctx context.Context, rec *commitlog.Record, guard uint64, after commitlog.Entry,
		) error {
			return a.Log.CommitTown(ctx, rec, &after, guard)
		},
		Signals: &signals.Recorder{Log: a.Log,
			NewProducer: func(planID, version string) (*runevents.Producer, error) {
				return logtest.NewProducer(runevents.Identity{
					RunID: uuid.NewString(), TenantID: "default", ProjectID: "main",
					EnvironmentID: "local", PlanID: planID, PlanVersion: version,
				}), nil
			}},
	}
}

// decision returns the signal of a person about a handoff of the town "t".
func decision(kind lifecycle.SignalKind, h *handoff.Handoff, person string) signals.Signal {
	return signals.Signal{Kind: kind, TownID: "t", HandoffID: h.HandoffID, ActorID: person,
		Reason: "why"}
}

// requireRefused requires that a decision was refused with a code, and that this is recorded.
func (a *asking) requireRefused(code wire.Code, err error) {
	a.t.Helper()
	var refused *signals.RefusedError
	require.ErrorAs(a.t, err, &refused)
	require.Equal(a.t, code, refused.Code)
	msg, err := a.Log.Store.Last(a.t.Context(), wire.SignalSubject("main"))
	require.NoError(a.t, err)
	rec, err := commitlog.ReadRecord(msg.Data)
	require.NoError(a.t, err)
	require.Equal(a.t, refused.SignalID, rec.Run.RunID)
}

// last returns the last record of the town "t", and what it leaves.
func (a *asking) last() (*commitlog.Record, commitlog.Entry) {
	a.t.Helper()
	msg, err := a.Log.LastOf(a.t.Context(), "t")
	require.NoError(a.t, err)
	rec, err := commitlog.ReadRecord(msg.Data)
	require.NoError(a.t, err)
	entry, err := commitlog.ReadEntry("t", msg)
	require.NoError(a.t, err)
	return rec, entry
}

// A decision is a commit of its town, with who decided, and counts from then on.
func TestADecisionIsTaken(t *testing.T) {
	t.Parallel()
	for kind, want := range map[lifecycle.SignalKind]approval.Status{
		lifecycle.SignalApprove: approval.Approved, lifecycle.SignalDeny: approval.Denied,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			a := newAsking(t)
			h := a.talk("t")
			_, asked := a.last()
			got, err := a.decider().Decide(t.Context(), decision(kind, h, "mara"))
			require.NoError(t, err)
			rec, now := a.last()
			require.Equal(t, commitlog.KindDecided, rec.Kind)
			d := &approval.Decision{Approved: want == approval.Approved, ActorID: "mara",
				Reason: "why", SignalID: rec.Run.RunID, At: noon}
			require.Equal(t, d, got.Decision)
			require.Equal(t, h.HandoffID, got.HandoffID)
			require.Equal(t, noon.Add(time.Minute), got.Expires)
			require.Equal(t, asked.Approvals[0].Handoff, got.Handoff)
			require.Equal(t, want, now.Approvals[0].Status(now.State.Hash, noon))
			require.Equal(t, asked.State.Hash, now.State.Hash)
			for i := range 2 { // the log names the bytes that were decided about
				require.Contains(t, string(rec.Run.Events[i].Payload),
					`"handoffHash":"`+asked.Approvals[0].HandoffHash+`"`)
			}

			again, err := a.decider().Decide(t.Context(), decision(kind, h, "mara"))
			require.NoError(t, err)
			require.Equal(t, d, again.Decision, "who says it twice has said it")
			_, last := a.last()
			require.Equal(t, now.Seq, last.Seq)
			_, err = a.decider().Decide(t.Context(), decision(kind, h, "olga"))
			a.requireRefused(wire.CodeAlreadyDecided, err)
		})
	}
}

func TestADecisionAboutWhatDoesNotWait(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	h := a.talk("t")
	approve := decision(lifecycle.SignalApprove, h, "mara")
	nowhere, other := approve, approve
	nowhere.TownID, other.HandoffID = "nowhere", "handoff_other"
	for _, s := range []signals.Signal{nowhere, other} {
		_, err := a.decider().Decide(t.Context(), s)
		a.requireRefused(wire.CodeUnknownApproval, err)
	}
	a.now = noon.Add(time.Hour)
	_, err := a.decider().Decide(t.Context(), approve)
	a.requireRefused(wire.CodeApprovalStale, err)
	_, now := a.last()
	require.Nil(t, now.Approvals[0].Decision)
}

// Of two people who decide at once one is first, and the other is told.
func TestTheOtherPersonIsFirst(t *testing.T) {
	t.Parallel()
	a := newAsking(t)
	h := a.talk("t")
	d := a.decider()
	commit, tries := d.Commit, 0
	d.Commit = func(
		ctx context.Context, rec *commitlog.Record, guard uint64, after commitlog.Entry,
	) error {
		if tries++; tries == 1 {
			_, err := a.decider().Decide(ctx, decision(lifecycle.SignalDeny, h, "olga"))
			require.NoError(t, err)
		}
		return commit(ctx, rec, guard, after)
	}
	_, err := d.Decide(t.Context(), decision(lifecycle.SignalApprove, h, "mara"))
	a.requireRefused(wire.CodeAlreadyDecided, err)
	require.Equal(t, 1, tries)
	_, now := a.last()
	require.Equal(t, "olga", now.Approvals[0].Decision.ActorID)
}
