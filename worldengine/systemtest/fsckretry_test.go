package systemtest_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/rcon"
	"worldengine/worldengine/town"
)

// unreachable is the configuration of a world whose console is not there.
func unreachable(t *testing.T) worldengine.Config {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	console, err := rcon.New(rcon.Config{
		Address: listener.Addr().String(), Password: "unused",
		Commands: map[handoff.ProposalType][]rcon.Template{
			handoff.TalkToTownsfolk: {{Run: "say hello"}},
		},
	})
	require.NoError(t, err)
	return worldengine.Config{Apply: apply.RCON, RCON: console, Plugin: apply.Policy{
		Absent:   apply.AbsentFail,
		Deadline: time.Minute, Attempts: 1, Resend: 100 * time.Millisecond,
	}}
}

// retry has a run retried, and returns the retry's run.
func (w *checkedWorld) retry(runID string, want handoff.Status) string {
	w.t.Helper()
	w.idle()
	got, err := w.engine.Retry(w.t.Context(), worldengine.Signal{
		Kind: machine.SignalRetry, RunID: runID, ActorID: "ada", Reason: "Why not?",
	}, time.Minute)
	require.NoError(w.t, err)
	require.NotNil(w.t, got.Answer)
	require.Equal(w.t, want, got.Answer.Result.Status)
	return got.RunID
}

// unreached sends a handoff to a missing console, and returns its run.
func (w *checkedWorld) unreached(at string) string {
	w.t.Helper()
	w.idle()
	o := w.result(w.later(by("anybody", w.now(at).State)), handoff.Failed)
	require.Equal(w.t, apply.ReasonPluginUnavailable, o.Result.ReasonCode)
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
	w.bind("t", w.now("t").State, apply.Local)
	w.retry(second, handoff.Executed)

	w.bind("t", w.now("t").State, apply.RCON)
	stale := w.unreached("t")
	changed := *w.now("t").State.Snapshot
	changed.Day++
	w.put(town.NewState(&changed), w.now("t").State.Hash)
	w.retry(stale, handoff.Stale)

	failed := w.unreached("t")
	w.bind("t", w.now("t").State, apply.Plugin)
	cancel := func(force bool) {
		runID := w.pending("t")
		require.Eventually(t, func() bool { // a request that is on its way just then is refused
			_, err := w.engine.Signal(t.Context(), worldengine.Signal{
				Kind: machine.SignalCancel, RunID: runID, Force: force,
			})
			return err == nil
		}, time.Minute, 10*time.Millisecond)
	}
	w.idle()
	waits, err := w.engine.Retry(t.Context(), worldengine.Signal{RunID: failed}, time.Millisecond)
	require.NoError(t, err)
	require.Nil(t, waits.Answer)
	cancel(false)
	w.idle()
	forced := w.later(by("waits", w.now("t").State))
	cancel(true)
	require.Error(t, (<-forced).err)
	w.clean()
	return w.messages()
}

// A run's used approval stays its own, even if the handoff is accepted once more when its town
// requires none any longer.
func TestFsck_RetryWithoutApproval(t *testing.T) {
	w := newCheckedWorld(t, unreachable(t))
	policy, err := approval.Parse("TOWNSFOLK_TALK")
	require.NoError(t, err)
	state := w.found("t")
	takes := func(policy *approval.Policy) {
		w.change(worldengine.Put{State: state, Expected: state.Hash,
			Attributes: worldengine.Attributes{Approval: policy}})
	}
	takes(&policy)
	asks := w.result(w.later(by("anybody", state)), handoff.Rejected)
	w.decide(machine.SignalApprove, "t", asks.Result.HandoffID)
	failed := w.unreached("t")
	takes(&approval.Policy{})
	w.retry(failed, handoff.Failed)
	w.clean()
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

// tamperedRetries are broken rules about retries.
var tamperedRetries = []tamper{
	{"a retry that its record does not name", change("handoff", 2, `"retryOf":{`, `"retriedOf":{`)},
	{"a refused retry that its record does not name",
		change("refused", 0, `"retryOf":{`, `"retriedOf":{`)},
	{"a retry of another run", change("pending", 1, `"retryOf":{"runId":"`,
		`"retryOf":{"runId":"0`)},
	{"a retry that ends as another", change("handoff", 1, `"retryOf":{"runId":"`,
		`"retryOf":{"runId":"0`)},
	{"a retry that ends as none", change("handoff", 1, `"retryOf":{`, `"retriedOf":{`)},
	{"a retry of what is to come", change("handoff", 2, `"logSeq":`, `"logSeq":1000`)},
	{"a retry that nobody asked for", change("handoff", 2, `"SignalAccepted"`, `"SignalNoted"`)},
	{"a retry for another signal", change("handoff", 2, `"signal":"RETRY_STEP"`,
		`"signal":"RESUME"`)},
	{"a retry for somebody else", change("pending", 1, `"triggeredBy":"ada"`,
		`"triggeredBy":"eve"`)},
	{"a signal in a run that is no retry", change("handoff", 0, `"RunFailed"`, `"SignalAccepted"`)},
}

// tamperedCancellations are broken rules about cancelled commands.
var tamperedCancellations = []tamper{
	{"a cancelled run that has failed", change("cancelled", 0, `"RunCancelled"`, `"RunFailed"`)},
	{"a cancelled run that goes on", change("cancelled", 0, `"RunCancelled"`, `"RunPaused"`)},
	{"another cancelled run", change("cancelled", 0, `"run":{"runId":"`, `"run":{"runId":"0`)},
	{"a run that was not pending", remove("pending", 5)},
	{"a cancellation that leaves the command",
		func(t *testing.T, log logMessages) (logMessages, uint64) {
			pending := log[nth(t, log, "pending", 5)]
			return change("cancelled", 1, `"snapshot":`,
				member(t, pending.Data, "pending", "snapshot")+`,"snapshot":`)(t, log)
		}},
	{"a cancellation that changes the town", change("cancelled", 0, `"snapshot":{"day":1`,
		`"snapshot":{"day":2`)},
	{"a cancellation with a result", change("cancelled", 0, `"run":{`, `"result":{},"run":{`)},
	{"a cancellation of a command that may have arrived",
		func(t *testing.T, log logMessages) (logMessages, uint64) {
			log, _ = change("pending", 4, `"emitted":`, `"reached":true,"emitted":`)(t, log)
			return log, 0 // what is found is about the record behind it
		}},
	{"a cancellation by nobody", change("cancelled", 1, `"payload":{"signalId":`,
		`"payload":{"signal":`)},
	{"an attempt that failed for itself", change("cancelled", 0, `"code":"RUN_CANCELLED"`,
		`"code":"PLUGIN_TIMEOUT"`)},
	{"an attempt that is not pending", change("cancelled", 0, `"logicalAttemptId":1`,
		`"logicalAttemptId":2`)},
	{"what was asked for of a cancelled run", change("pending", 5, `"payload":{"townId":"t"`,
		`"payload":{"townId":"u"`)},
	{"a cancellation that was not guarded", unguarded("cancelled", 0)},
	{"a cancellation that pauses", change("cancelled", 0, `"kind":"cancelled"`, `"kind":"control"`)},
	{"events of a cancellation in the place of others",
		change("cancelled", 0, `"firstSeq":`, `"firstSeq":1,"x":`)},
	{"the hash of another state", func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, "cancelled", 0)]
		msg.Header["Snapshot-Hash"] = []string{strings.Repeat("0", 64)}
		return log, msg.Sequence
	}},
}

func TestFsck_TamperedRetries(t *testing.T) {
	requireTampered(t, retold(t), slices.Concat(tamperedRetries, tamperedCancellations))
}
