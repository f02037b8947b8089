package systemtest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
)

// decide decides about a handoff that waits.
func (w *checkedWorld) decide(kind machine.SignalKind, townID, handoffID string) {
	w.t.Helper()
	_, _, err := w.Engine().Signals().Decide(w.t.Context(), engine.Signal{
		Kind: kind, TownID: townID, HandoffID: handoffID, ActorID: "ada", Reason: "because",
	}, false)
	require.NoError(w.t, err)
}

// edit changes the nth record of a kind.
func edit(kind string, n int, do func(*machine.Record)) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		rec, err := records.Read(msg.Data)
		require.NoError(t, err)
		do(rec)
		msg.Data, err = json.Marshal(rec)
		require.NoError(t, err)
		return log, msg.Sequence
	}
}

// decidedWorld returns a world in which a person has denied a proposal, which was sent again, and
// approved another, which was executed, while a third waited.
func decidedWorld(t *testing.T, config engine.Config, own *approval.Policy) *checkedWorld {
	w := newCheckedWorld(t, config)
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	w.change(engine.Put{State: state, Attributes: engine.Attributes{Approval: own}})
	bystander := towntest.Proposal(state, handoff.TalkToTownsfolk, "casual")
	bystander.Priority = 0.25
	w.send(bystander, handoff.Rejected)
	w.send(bystander, handoff.Rejected)
	denied := towntest.Proposal(state, handoff.TalkToTownsfolk, "morale-boost")
	h := w.send(denied, handoff.Rejected)
	w.decide(machine.SignalDeny, "t", h.HandoffID)
	w.send(denied, handoff.Rejected)
	approved := towntest.Proposal(state, handoff.TalkToTownsfolk, "casual")
	h = w.send(approved, handoff.Rejected)
	w.decide(machine.SignalApprove, "t", h.HandoffID)
	w.send(approved, handoff.Executed)
	w.clean()
	return w
}

// copiesOf returns the messages of a log, which may be changed.
func copiesOf(m logMessages) logMessages {
	copies := make(logMessages, len(m))
	for i := range m {
		copies[i] = copied(m[i])
	}
	return copies
}

// A handoff that was executed, or refused as denied, has a person's decision in the records before.
func TestFsck_TamperedApprovals(t *testing.T) {
	policy, err := approval.Parse("TOWNSFOLK_TALK")
	require.NoError(t, err)
	log := decidedWorld(t, engine.Config{}, &policy).messages()
	last := func(rec *machine.Record) *approval.Request {
		return &rec.Approvals[len(rec.Approvals)-1]
	}
	decision := &approval.Decision{Approved: true, SignalID: "s", ActorID: "ben", At: time.Now()}
	var decided approval.List // what waited before it was used
	_, _ = edit("decided", 1, func(rec *machine.Record) { decided = rec.Approvals })(
		t, copiesOf(log))
	requireTampered(t, log, map[string]tampering{
		"the approval had expired": edit("decided", 1, func(rec *machine.Record) {
			last(rec).Expires = last(rec).Decision.At.Add(-time.Hour)
		}),
		"the question had expired": edit("asked", 2, func(rec *machine.Record) {
			last(rec).Expires = last(rec).At
		}),
		"it was decided before": edit("asked", 2, func(rec *machine.Record) {
			last(rec).Decision = decision
		}),
		"the approval is not used up": edit("handoff", 0, func(rec *machine.Record) {
			rec.Approvals = decided
		}),
		"another run is named as that which used the approval": edit("handoff", 0,
			func(rec *machine.Record) { last(rec).RunID = "another" }),
		"a put approves": edit("handoff", 0, func(rec *machine.Record) {
			rec.Approvals[0].Decision = decision
		}),
		"a decision leaves another out": edit("decided", 0, func(rec *machine.Record) {
			rec.Approvals = rec.Approvals[1:]
		}),
		"a decision has another wait for longer": edit("decided", 0,
			func(rec *machine.Record) {
				rec.Approvals[0].Expires = rec.Approvals[0].Expires.Add(time.Hour)
			}),
		"a question leaves another out": edit("asked", 1, func(rec *machine.Record) {
			rec.Approvals = rec.Approvals[1:]
		}),
		"it waited already": edit("asked", 0, func(rec *machine.Record) {
			*rec = copyOf(t, log, "asked", 2)
			rec.Run.Events[0].EmittedAt = "2026-01-01T00:00:00.000Z" // both may be of one millisecond
		}),
		"it did not wait": edit("asked", 0, func(rec *machine.Record) {
			rec.Approvals[0].Decision = decision
		}),
		"another trace": edit("asked", 0, func(rec *machine.Record) {
			rec.Approvals[0].Trace = trace.Parse(
				"00-11111111111111111111111111111111-00f067aa0ba902b7-01", "")
		}),
		"asked at another time": edit("asked", 0, func(rec *machine.Record) {
			rec.Approvals[0].At = rec.Approvals[0].At.Add(-time.Hour)
		}),
		"decided at another time": edit("decided", 1, func(rec *machine.Record) {
			last(rec).Decision.At = last(rec).Decision.At.Add(-time.Hour)
		}),
		"the signal names other bytes": edit("decided", 1, func(rec *machine.Record) {
			e := &rec.Run.Events[1]
			e.Payload = []byte(strings.Replace(string(e.Payload), `"handoffHash":"`,
				`"handoffHash":"0`, 1))
		}),
	})
}

// copyOf returns the nth record of a kind.
func copyOf(t *testing.T, log logMessages, kind string, n int) (rec machine.Record) {
	_, _ = edit(kind, n, func(found *machine.Record) { rec = *found })(t, copiesOf(log))
	return rec
}

// A record names the world's policy by which its handoff was judged, if the town has none.
func TestFsck_TamperedWorldApprovals(t *testing.T) {
	w := decidedWorld(t, engine.Config{Settings: worldsettings.Settings{RequireApproval: "TOWNSFOLK_TALK"}}, nil)
	others, err := approval.Parse("SALVAGE_PLAN")
	require.NoError(t, err)
	elsewhere := func(rec *machine.Record) { rec.WorldPolicy = &others }
	requireTampered(t, w.messages(), map[string]tampering{
		"an approval of a type that takes none":   edit("handoff", 0, elsewhere),
		"a question about a type that takes none": edit("asked", 0, elsewhere),
	})
}

// unreachable is the configuration of a world whose console is not there. A request to a plugin that is not there
// either counts as arrived unless NATS says within Resend that nobody is subscribed.
func unreachable(t *testing.T) engine.Config {
	t.Helper()
	console, err := rcon.New(rcon.Config{
		Address: "127.0.0.1:1", Password: "unused",
		Commands: map[handoff.ProposalType][]rcon.Template{
			handoff.TalkToTownsfolk: {{Run: "say hello"}},
		},
	})
	require.NoError(t, err)
	return engine.Config{Settings: worldsettings.Settings{Binding: apply.RCON}, RCON: console, Retry: apply.RetryPolicy{
		Absence:  apply.AbsenceFail,
		Deadline: time.Minute, Attempts: 1, Resend: time.Minute,
	}}
}

// retry has a run retried, and returns the retry's run.
func (w *checkedWorld) retry(runID string, want handoff.Status) string {
	w.t.Helper()
	w.idle()
	got, err := w.Engine().Signals().Retry(w.t.Context(), engine.Signal{
		Kind: machine.SignalRetry, RunID: runID, ActorID: "ada", Reason: "Why not?",
	}, time.Minute)
	require.NoError(w.t, err)
	result, err := handoff.ParseResult(got.Result, schemas.Limits{})
	require.NoError(w.t, err)
	require.Equal(w.t, want, result.Status)
	return got.RunID
}

// unreached sends a handoff to a missing console, and returns its run.
func (w *checkedWorld) unreached(at string) string {
	w.t.Helper()
	w.idle()
	o := w.result(w.later(proposalBy("anybody", w.state(at))), handoff.Failed)
	require.Equal(w.t, apply.ReasonGameUnavailable, o.Result.ReasonCode)
	return o.RunID
}

// retold makes a world in which runs are tried again, and cancelled, and returns its log:
//
//	handoff 0, 1, 2  a handoff that fails (pending 0), is tried again and fails again (pending 1),
//	                 and is tried again by the rules, and executed
//	handoff 3        fails (pending 2), and its town changes: refused 0 is its retry
//	handoff 4        fails (pending 3); its retry (pending 4) waits for a plugin; cancelled 0 (signal 0)
//	cancelled 1      is cancelled by force (signal 1), before any plugin was asked for (pending 5)
func retold(t *testing.T) []*jetstream.RawStreamMsg {
	w := newCheckedWorld(t, unreachable(t))
	w.found("t")
	second := w.retry(w.unreached("t"), handoff.Failed)
	w.bind("t", w.state("t"), apply.Local)
	w.retry(second, handoff.Executed)

	w.bind("t", w.state("t"), apply.RCON)
	stale := w.unreached("t")
	changed := *w.state("t").Snapshot
	changed.Day++
	w.put(town.NewState(&changed), w.state("t").Hash)
	w.retry(stale, handoff.Stale)

	failed := w.unreached("t")
	w.bind("t", w.state("t"), apply.Plugin)
	cancel := func(force bool) {
		runID := w.pending("t")
		require.Eventually(t, func() bool { // a request that is on its way just then is refused
			_, err := w.Engine().Signals().Handle(t.Context(), engine.Signal{
				Kind: machine.SignalCancel, RunID: runID, Force: force,
			})
			return err == nil
		}, time.Minute, 10*time.Millisecond)
	}
	w.idle()
	waits, err := w.Engine().Signals().Retry(t.Context(), engine.Signal{RunID: failed}, time.Millisecond)
	require.NoError(t, err)
	require.Nil(t, waits.Result)
	cancel(false)
	w.idle()
	forced := w.later(proposalBy("waits", w.state("t")))
	cancel(true)
	require.Error(t, (<-forced).err)
	w.clean()
	return w.messages()
}

func TestFsck_Retries(t *testing.T) {
	log := retold(t)
	found, counts, open := FsckLog("main", log)
	require.Empty(t, found)
	require.Equal(t, int64(5), counts.Accepted)
	require.Zero(t, open)
	for history := range log { // what is left of a log tells no lies
		i := -1
		left := slices.DeleteFunc(slices.Clone(log), func(m *jetstream.RawStreamMsg) bool {
			i++
			return i < history && m.Subject == "world.main.log.t"
		})
		found, _, _ := FsckLog("main", left)
		require.Empty(t, found, "the town from %d", history)
	}
}

// A key that was accepted twice is found, even in a run that claims to be a retry.
func TestFsck_KeyAcceptedTwice(t *testing.T) {
	w := newCheckedWorld(t, unreachable(t))
	w.found("t")
	first := w.unreached("t")
	second := w.retry(first, handoff.Failed)
	w.retry(second, handoff.Failed)
	w.clean()
	log := w.messages()
	for _, named := range []string{first, "another"} {
		again := copied(log[nth(t, log, "handoff", 2)])
		forged := strings.Replace(string(again.Data), `"retryOf":{"runId":"`+second,
			`"retryOf":{"runId":"`+named, 1)
		require.NotEqual(t, string(again.Data), forged)
		seq := w.forge(again.Subject, again.Header, forged)
		report := w.fsck(fsck.Options{})
		require.True(t, slices.ContainsFunc(report.Findings, func(f fsck.Finding) bool {
			return f.What == "the key was accepted twice" && f.Sequence == seq
		}), "%v", report.Findings)
	}
}

// Broken rules about retries and cancelled commands.
func TestFsck_TamperedRetries(t *testing.T) {
	requireTampered(t, retold(t), map[string]tampering{
		"a cancellation that leaves the command": func(
			t *testing.T, log logMessages,
		) (logMessages, uint64) {
			pending := member(t, log[nth(t, log, "pending", 5)].Data, "pending", "snapshot")
			return replace("cancelled", 1, `"snapshot":`, pending+`,"snapshot":`)(t, log)
		},
		"a cancellation of a command that may have arrived": func(
			t *testing.T, log logMessages,
		) (logMessages, uint64) {
			log, _ = replace("pending", 4, `"emitted":`, `"reached":true,"emitted":`)(t, log)
			return log, 0 // what is found is about the record behind it
		},
	})
}

// An approval is for one handoff: submitting it retries no other handoff with its key.
func TestDeliver_KeyOfAnotherFailedHandoff(t *testing.T) {
	w := newCheckedWorld(t, unreachable(t))
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	w.change(engine.Put{State: state, Attributes: engine.Attributes{
		Approval: &approval.Policy{Types: []handoff.ProposalType{handoff.AdvanceProject}},
	}})
	talk := towntest.Proposal(state, handoff.TalkToTownsfolk, "casual")
	talk.ProposalID = talk.DeriveProposalID()
	advance := towntest.Proposal(state, handoff.AdvanceProject, "wall")
	advance.ProposalID = talk.ProposalID
	asked := w.send(advance, handoff.Rejected)
	w.send(talk, handoff.Failed)
	w.idle()
	w.bind("t", state, apply.Local)
	_, delivery, err := w.Engine().Signals().Decide(t.Context(), engine.Signal{
		Kind: machine.SignalApprove, TownID: "t", HandoffID: asked.HandoffID, ActorID: "ada",
	}, true)
	require.NoError(t, err)
	answer, err := delivery.Wait(t.Context())
	require.NoError(t, err)
	result, err := handoff.ParseResult(answer.JSON, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, asked.HandoffID, result.HandoffID)
	require.Equal(t, handoff.ReasonKeyReused, result.ReasonCode)
	require.Equal(t, state.Hash, w.state("t").Hash)
	w.clean()
}

// The result of an approved handoff is its own, even if another handoff has used its key since.
func TestDeliver_KeyUsedSinceByAnotherHandoff(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	w.change(engine.Put{State: state, Attributes: engine.Attributes{
		Binding: apply.Plugin, Approval: &approval.Policy{
			Types: []handoff.ProposalType{handoff.AdvanceProject},
		},
	}})
	advance := towntest.Proposal(state, handoff.AdvanceProject, "wall")
	talk := towntest.Proposal(state, handoff.TalkToTownsfolk, "casual")
	talk.ProposalID = advance.DeriveProposalID()
	asked := w.send(advance, handoff.Rejected)
	approve := engine.Signal{
		Kind: machine.SignalApprove, TownID: "t", HandoffID: asked.HandoffID, ActorID: "ada",
	}
	_, _, err := w.Engine().Signals().Decide(t.Context(), approve, false)
	require.NoError(t, err)
	cancelled := w.later(advance)
	runID := w.pending("t")
	require.Eventually(t, func() bool { // a request that is on its way just then is refused
		_, err := w.Engine().Signals().Handle(t.Context(), engine.Signal{
			Kind: machine.SignalCancel, RunID: runID,
		})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, (<-cancelled).err)
	w.idle()
	w.bind("t", state, apply.Local)
	w.send(talk, handoff.Executed)
	_, delivery, err := w.Engine().Signals().Decide(t.Context(), approve, true)
	require.NoError(t, err)
	_, err = delivery.Wait(t.Context())
	require.ErrorIs(t, err, engine.ErrUnknownResult)
	w.clean()
}
