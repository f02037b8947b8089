package logtest

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
)

// Facts compares the records of a log with the table of their kinds. It has the last record of each subject.
type Facts map[string]*machine.Record

// Require requires that the next record of a log agrees with the row of its kind.
func (f Facts) Require(t testing.TB, subject string, rec *machine.Record) {
	t.Helper()
	spec, prior := rec.Kind.Spec(), f[subject]
	f[subject] = rec
	fact := func(name string, want, got bool) {
		t.Helper()
		require.Equal(t, want, got, "%s of kind %q", name, rec.Kind)
	}
	fact("Known", true, rec.Kind.Known())
	fact("Subject", rec.Subject() == machine.TownSubject, rec.Snapshot != nil)
	fact("HasResult", spec.HasResult, rec.Result != nil && rec.Handoff != nil)
	fact("ConsumesKey", spec.ConsumesKey, isAccepted(t, rec))
	if spec.Run != machine.Sometimes {
		fact("Run", spec.Run == machine.Always, rec.Run != nil)
	}
	if rec.Run != nil {
		ends := slices.ContainsFunc(rec.Run.Events, func(e runlog.Event) bool { return e.EventType.EndsRun() })
		fact("LeavesRunOpen", spec.LeavesRunOpen, !ends || rec.Subject() == machine.RunSubject)
	}
	if _, err := machine.SignalIn(rec.Run); spec.Signal {
		require.NoError(t, err, "Signal of kind %q", rec.Kind)
	}
	if rec.Kind != machine.KindAppended {
		fact("Foreign", spec.Foreign, rec.Run != nil && rec.Run.AppendedBy != "")
	}
	if prior == nil || rec.Subject() != machine.TownSubject {
		return
	}
	if spec.LeavesState {
		require.Equal(t, string(prior.Snapshot), string(rec.Snapshot), "LeavesState of kind %q", rec.Kind)
	}
	if prior.Pending != nil && rec.Pending == nil {
		fact("EndsCommand", true, spec.EndsCommand)
	}
	if len(rec.Approvals) > len(prior.Approvals) {
		fact("Approval", true, spec.Approval)
	}
}

// isAccepted reports whether a record has the result of an accepted handoff.
func isAccepted(t testing.TB, rec *machine.Record) bool {
	t.Helper()
	var result handoff.Result
	if rec.Result == nil {
		return false
	}
	require.NoError(t, json.Unmarshal(rec.Result, &result))
	return result.Status.Accepted()
}
