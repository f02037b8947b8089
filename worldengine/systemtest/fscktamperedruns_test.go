package systemtest_test

import (
	"testing"
)

// tamperedRuns are broken rules about conclusions, and about the story of a run.
var tamperedRuns = []tamper{
	{"the result of another handoff", change("handoff", 0, `"command":"`, `"command":"please `),
		[]string{
			eventDiffers + "runSeq 1, RunStarted",
			"the result is not that of the pending handoff",
		}},
	{"the conclusion of another run", func(t *testing.T, log logMessages) (logMessages, uint64) {
		const from = `"run":{"runId":"`
		own := between(t, string(log[nth(t, log, "handoff", 0)].Data), from, `"`)
		other := between(t, string(log[nth(t, log, "handoff", 1)].Data), from, `"`)
		return change("handoff", 0, from+own, from+other)(t, log)
	}, []string{
		"the header does not name the run",
		"the concluded run is not that of the pending handoff",
	}},
	{"the end of another attempt",
		change("handoff", 0, `"logicalAttemptId":3`, `"logicalAttemptId":2`), []string{
			"an event is not a valid transition",
			"the run does not end as its result says",
		}},
	{"a conclusion that does not end the run",
		change("handoff", 0, `"RunCompleted"`, `"RunPaused"`),
		[]string{
			"the run does not end as its result says",
		}},
	{"a code that is no plugin's", change("handoff", 1, `"code":"CHUNK_NOT_LOADED"`, `"code":""`),
		[]string{
			eventDiffers + "runSeq 16, StepFailed apply 3",
		}},
	{"the plugin's code where the rules failed",
		change("handoff", 2, `"code":"PROJECT_BLOCKED"`, `"code":"NO_SUCH_PLACE"`), []string{
			eventDiffers + "runSeq 9, StepFailed apply",
		}},
	{"events in the place of others", change("handoff", 0, `"firstSeq":13`, `"firstSeq":12`),
		[]string{
			"the events do not come after those before them",
		}},
	// The story of a run.
	{"what was asked for", change("pending", 0, `"handoffId":"handoff_`, `"handoffId":"handoff-`),
		[]string{
			"the pending handoff, or the state expected of it, is not valid",
			"another attempt changed what is pending",
		}},
	{"what was asked for of a paused run",
		change("run", 5, `"handoffId":"handoff_`, `"handoffId":"handoff-`), []string{
			eventDiffers + "runSeq 1, RunStarted",
		}},
	{"what a check said", change("pending", 0, `"payload":{"evaluated":true,"duplicate":false`,
		`"payload":{"evaluated":true,"duplicate":true`), []string{
		eventDiffers + "runSeq 3, StepCompleted duplicate-check",
	}},
	{"a check that failed", change("pending", 0,
		`"eventType":"StepCompleted","stepId":"stale-check"`,
		`"eventType":"StepFailed","stepId":"stale-check"`), []string{
		"the run is not where a command begins to be applied",
		eventDiffers + "runSeq 5, StepFailed stale-check",
		"the run does not end as its result says",
	}},
	{"a failure without a code", change("run", 0, `"code":"CHUNK_NOT_LOADED"`, `"code":""`),
		[]string{
			eventDiffers + "runSeq 9, StepFailed apply",
		}},
	{"an attempt that did not fail",
		change("run", 0, `"eventType":"StepFailed"`, `"eventType":"StepCompleted"`), []string{
			"an event is not one that is emitted between commits",
			eventDiffers + "runSeq 9, StepCompleted apply",
			"the run does not end as its result says",
		}},
	{"an attempt that failed twice", change("run", 2, `"logicalAttemptId":2`,
		`"logicalAttemptId":1`),
		[]string{
			"two events have one idempotency key",
			"an event is not a valid transition",
		}},
	{"an event with the id of another", func(t *testing.T, log logMessages) (logMessages, uint64) {
		id := between(t, string(log[nth(t, log, "pending", 0)].Data), `"events":[{"eventId":"`, `"`)
		own := between(t, string(log[nth(t, log, "run", 0)].Data), `"events":[{"eventId":"`, `"`)
		return change("run", 0, own, id)(t, log)
	}, []string{
		"two events have one id",
	}},
	{"a run that goes on as another", change("run", 0, `"tenantId":"default"`,
		`"tenantId":"other"`),
		[]string{
			"the run's identity is not the one of its records before",
		}},
	{"a run that goes to another town", change("run", 0, `"townId":"t"`, `"townId":"u"`), []string{
		"the run is of another town than before",
	}},
	{"a run that was not resumed", change("pending", 3, `"RunResumed"`, `"RunQueued"`), []string{
		"the run does not begin with its first event",
		"an event is not a valid transition",
		"an event is not a valid transition",
	}},
	{"others' events in the place of others", change("events", 0, `"firstSeq":3`, `"firstSeq":2`),
		[]string{
			"the events do not come after those before them",
		}},
	{"others' event with an id of the engine's",
		func(t *testing.T, log logMessages) (logMessages, uint64) {
			id := between(t, string(log[nth(t, log, "run", 5)].Data), `"events":[{"eventId":"`, `"`)
			own := between(t, string(log[nth(t, log, "events", 0)].Data),
				`"events":[{"eventId":"`, `"`)
			return change("events", 0, own, id)(t, log)
		}, []string{
			"two events have one id",
		}},
	{"an append that was not guarded", unguarded("events", 0), []string{
		"the append was not guarded by the run's message before it",
	}},
	{"an end that was not guarded", unguarded("run", 6), []string{
		"the append was not guarded by the run's message before it",
	}},
	{"the subject of another run", func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, "run", 5)]
		msg.Subject += "0"
		return log, msg.Sequence
	}, []string{
		"the events stand on the subject of another run",
	}},
	{"an empty record that closes nothing", change("run", 4, `"closing":true`, `"closing":false`),
		[]string{
			"the record has no run",
		}},
	{"a cancelled run that is not closed", change("run", 14, `"closing":true`, `"closing":false`),
		[]string{
			"a run that is cancelled is not closed to others",
		}},
	{"a pause by nobody", change("run", 5, `"payload":{"signalId":`, `"payload":{"signal":`),
		[]string{
			"a paused run does not name the signal: runSeq 2, RunPaused",
		}},
	{"an event that stands elsewhere", change("run", 0, `"stepId":"apply"`, `"stepId":"build"`),
		[]string{
			"an event is not a valid transition",
			"an event is not one that is emitted between commits",
		}},
}

// tamperedSignals are broken rules about signals and what is carried over.
var tamperedSignals = []tamper{
	{"a pause that names another signal", change("control", 0, `"signalId":"`, `"signalId":"0`),
		[]string{
			"the pause names another run than its signal's",
		}},
	{"a pause that its events do not tell",
		change("control", 0, `"signal":"PAUSE"`, `"signal":"RESUME"`), []string{
			eventDiffers + "runSeq 2, SignalAccepted",
			eventDiffers + "runSeq 1, RunStarted",
		}},
	{"a pause by somebody else", change("control", 0, `"actorId":"ada"`, `"actorId":"eve"`),
		[]string{
			eventDiffers + "runSeq 1, RunStarted",
		}},
	{"a pause that changes the state",
		change("control", 0, `"snapshot":{"day":23`, `"snapshot":{"day":24`), []string{
			"the header is not the hash of the stored state",
			"the header is not the day of the stored state",
			"a record that cannot change the state changed it",
			"the town's day was lowered",
			"a record that cannot change the state changed it",
		}},
	{"a pause that says who applies", change("control", 0, `"paused":`, `"apply":"rcon","paused":`),
		[]string{
			"a record that is no put changed who applies the town's commands",
			"a record that is no put changed who applies the town's commands",
		}},
	{"a handoff that says who applies",
		change("handoff", 2, `"townId":"t"`, `"townId":"t","apply":"rcon"`), []string{
			"a record that is no put changed who applies the town's commands",
			"a record that is no put changed who applies the town's commands",
		}},
	{"a handoff that ends a pause", remove("control", 1), []string{
		"the commit was not guarded by the town's message before it",
		"a record that is no signal paused or resumed the town",
		"a handoff was judged while its town was paused",
	}},
	{"a resumption of what is not paused", remove("control", 0), []string{
		"the commit was not guarded by the town's message before it",
		"the signal asks for the state that was there before",
	}},
	{"a pause of the world that is paused",
		func(t *testing.T, log logMessages) (logMessages, uint64) {
			first, second := log[nth(t, log, "control", 2)], log[nth(t, log, "control", 3)]
			second.Data, second.Header["Run-Id"] = first.Data, first.Header["Run-Id"]
			return log, second.Sequence
		}, []string{
			"the signal asks for the state that was there before",
		}},
	{"a signal that was refused and accepted",
		change("control", 1, `"SignalAccepted"`, `"SignalRejected"`), []string{
			"the run does not have the events of a signal",
		}},
	{"a signal with another plan", change("control", 2, `"planId":"signal"`, `"planId":"other"`),
		[]string{
			"the run is not one of a signal",
		}},
	{"a signal that begins in its middle", change("control", 2, `"firstSeq":1`, `"firstSeq":2`),
		[]string{
			"the run does not begin with its first event",
		}},
	{"a pause of the world that was not guarded", unguarded("control", 3), []string{
		"the signal was not guarded by the one before it",
	}},
	{"a pause of the world elsewhere", change("control", 2, `"townId":""`, `"townId":"u"`),
		[]string{
			"the record stands on the subject of another town",
			"the header does not name the town",
			"the stored state is not a snapshot.v1",
		}},
	{"a refusal without a reason", change("signal", 0, `"code":"ALREADY_PAUSED"`, `"code":""`),
		[]string{
			"a refused signal has no reason code: runSeq 2, SignalRejected",
		}},
	{"a refusal with an end of success", change("signal", 0, `"RunFailed"`, `"RunCompleted"`),
		[]string{
			"the run does not have the events of a signal",
		}},
	{"a cancellation of nothing",
		change("signal", 1, `"townId":"t","runId":"`, `"townId":"t","run":"`), []string{
			eventDiffers + "runSeq 2, SignalAccepted",
			"a cancellation does not name the run: runSeq 1, RunStarted",
		}},
	{"a cancellation that is a pause", change("signal", 1, `"signal":"CANCEL"`, `"signal":"PAUSE"`),
		[]string{
			eventDiffers + "runSeq 2, SignalAccepted",
			eventDiffers + "runSeq 1, RunStarted",
		}},
	{"a signal for another town", change("signal", 1, `"townId":"t"`, `"townId":"u"`), []string{
		eventDiffers + "runSeq 1, RunStarted",
		eventDiffers + "runSeq 2, SignalAccepted",
	}},
	{"a signal on another subject", func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, "signal", 0)]
		msg.Subject = "world.main.control"
		return log, msg.Sequence
	}, []string{
		"the signal stands on another subject than the signals'",
	}},
	{"a signal without a run", change("signal", 0, `"run":{`, `"ran":{`), []string{
		"the record has no run",
	}},
}
