package systemtest_test

import (
	"testing"
)

// tamperedRuns are broken rules about conclusions, and about the story of a run.
var tamperedRuns = []tamper{
	{"the result of another handoff", change("handoff", 0, `"command":"`, `"command":"please `)},
	{"the conclusion of another run", func(t *testing.T, log logMessages) (logMessages, uint64) {
		const from = `"run":{"runId":"`
		own := between(t, string(log[nth(t, log, "handoff", 0)].Data), from, `"`)
		other := between(t, string(log[nth(t, log, "handoff", 1)].Data), from, `"`)
		return change("handoff", 0, from+own, from+other)(t, log)
	}},
	{"the end of another attempt",
		change("handoff", 0, `"logicalAttemptId":3`, `"logicalAttemptId":2`)},
	{"a conclusion that does not end the run",
		change("handoff", 0, `"RunCompleted"`, `"RunPaused"`)},
	{"a code that is no plugin's", change("handoff", 1, `"code":"CHUNK_NOT_LOADED"`, `"code":""`)},
	{"the plugin's code where the rules failed",
		change("handoff", 2, `"code":"PROJECT_BLOCKED"`, `"code":"NO_SUCH_PLACE"`)},
	{"events in the place of others", change("handoff", 0, `"firstSeq":13`, `"firstSeq":12`)},
	// The story of a run.
	{"what was asked for", change("pending", 0, `"handoffId":"handoff_`, `"handoffId":"handoff-`)},
	{"what was asked for of a paused run",
		change("run", 5, `"handoffId":"handoff_`, `"handoffId":"handoff-`)},
	{"what a check said", change("pending", 0, `"payload":{"evaluated":true,"duplicate":false`,
		`"payload":{"evaluated":true,"duplicate":true`)},
	{"a check that failed", change("pending", 0,
		`"eventType":"StepCompleted","stepId":"stale-check"`,
		`"eventType":"StepFailed","stepId":"stale-check"`)},
	{"a failure without a code", change("run", 0, `"code":"CHUNK_NOT_LOADED"`, `"code":""`)},
	{"an attempt that did not fail",
		change("run", 0, `"eventType":"StepFailed"`, `"eventType":"StepCompleted"`)},
	{"an attempt that failed twice", change("run", 2, `"logicalAttemptId":2`,
		`"logicalAttemptId":1`)},
	{"an event with the id of another", func(t *testing.T, log logMessages) (logMessages, uint64) {
		id := between(t, string(log[nth(t, log, "pending", 0)].Data), `"events":[{"eventId":"`, `"`)
		own := between(t, string(log[nth(t, log, "run", 0)].Data), `"events":[{"eventId":"`, `"`)
		return change("run", 0, own, id)(t, log)
	}},
	{"a run that goes on as another", change("run", 0, `"tenantId":"default"`,
		`"tenantId":"other"`)},
	{"a run that goes to another town", change("run", 0, `"townId":"t"`, `"townId":"u"`)},
	{"a run that was not resumed", change("pending", 3, `"RunResumed"`, `"RunQueued"`)},
	{"others' events in the place of others", change("events", 0, `"firstSeq":3`, `"firstSeq":2`)},
	{"others' event with an id of the engine's",
		func(t *testing.T, log logMessages) (logMessages, uint64) {
			id := between(t, string(log[nth(t, log, "run", 5)].Data), `"events":[{"eventId":"`, `"`)
			own := between(t, string(log[nth(t, log, "events", 0)].Data),
				`"events":[{"eventId":"`, `"`)
			return change("events", 0, own, id)(t, log)
		}},
	{"an append that was not guarded", unguarded("events", 0)},
	{"an end that was not guarded", unguarded("run", 6)},
	{"the subject of another run", func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, "run", 5)]
		msg.Subject += "0"
		return log, msg.Sequence
	}},
	{"an empty record that closes nothing", change("run", 4, `"closing":true`, `"closing":false`)},
	{"a cancelled run that is not closed", change("run", 14, `"closing":true`, `"closing":false`)},
	{"a pause by nobody", change("run", 5, `"payload":{"signalId":`, `"payload":{"signal":`)},
	{"an event that stands elsewhere", change("run", 0, `"stepId":"apply"`, `"stepId":"build"`)},
}

// tamperedSignals are broken rules about signals and carried-over members.
var tamperedSignals = []tamper{
	{"a pause that names another signal", change("control", 0, `"signalId":"`, `"signalId":"0`)},
	{"a pause that its events do not tell",
		change("control", 0, `"signal":"PAUSE"`, `"signal":"RESUME"`)},
	{"a pause by somebody else", change("control", 0, `"actorId":"ada"`, `"actorId":"eve"`)},
	{"a pause that changes the state",
		change("control", 0, `"snapshot":{"day":23`, `"snapshot":{"day":24`)},
	{"a pause that says who applies", change("control", 0, `"paused":`, `"apply":"rcon","paused":`)},
	{"a handoff that says who applies",
		change("handoff", 2, `"townId":"t"`, `"townId":"t","apply":"rcon"`)},
	{"a handoff that ends a pause", remove("control", 1)},
	{"a resumption of what is not paused", remove("control", 0)},
	{"a pause of the world that is paused",
		func(t *testing.T, log logMessages) (logMessages, uint64) {
			first, second := log[nth(t, log, "control", 2)], log[nth(t, log, "control", 3)]
			second.Data, second.Header["Run-Id"] = first.Data, first.Header["Run-Id"]
			return log, second.Sequence
		}},
	{"a signal that was refused and accepted",
		change("control", 1, `"SignalAccepted"`, `"SignalRejected"`)},
	{"a signal with another plan", change("control", 2, `"planId":"signal"`, `"planId":"other"`)},
	{"a signal that begins in its middle", change("control", 2, `"firstSeq":1`, `"firstSeq":2`)},
	{"a pause of the world that was not guarded", unguarded("control", 3)},
	{"a pause of the world elsewhere", change("control", 2, `"townId":""`, `"townId":"u"`)},
	{"a refusal without a reason", change("signal", 0, `"code":"ALREADY_PAUSED"`, `"code":""`)},
	{"a refusal with an end of success", change("signal", 0, `"RunFailed"`, `"RunCompleted"`)},
	{"a cancellation of nothing",
		change("signal", 1, `"townId":"t","runId":"`, `"townId":"t","run":"`)},
	{"a cancellation that is a pause", change("signal", 1, `"signal":"CANCEL"`, `"signal":"PAUSE"`)},
	{"a signal for another town", change("signal", 1, `"townId":"t"`, `"townId":"u"`)},
	{"a signal on another subject", func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, "signal", 0)]
		msg.Subject = "world.main.control"
		return log, msg.Sequence
	}},
	{"a signal without a run", change("signal", 0, `"run":{`, `"ran":{`)},
}
