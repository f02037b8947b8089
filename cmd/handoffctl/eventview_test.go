package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"worldengine/runevents"
	"worldengine/worldengine/machine"
)

func TestApp_Sense(t *testing.T) {
	t.Parallel()
	a := &app{}
	for _, row := range []struct {
		event         runevents.EventType
		step, payload string
		want          string
	}{
		{runevents.RunStarted, "", `{"command":"project advance"}`, "project advance"},
		{runevents.RunStarted, "", `{"signal":"PAUSE","actorId":"ada"}`, "PAUSE the world by ada"},
		{runevents.SignalRejected, "", `{"signal":"APPROVE","actorId":"ada","code":"FORBIDDEN"}`,
			"APPROVE a handoff by ada: FORBIDDEN"},
		{runevents.RunCompleted, "", `{"status":"executed","reasonCode":"EXECUTED"}`,
			"executed EXECUTED"},
		{runevents.RunFailed, "", `{"error":{"code":"X","message":"away"}}`, "X: away"},
		{runevents.RunApproved, "", `{"signalId":"s","actorId":"ada"}`, "by signal s"},
		{runevents.RunCancelled, "", `{"signalId":"s","reason":"late"}`, "by signal s: late"},
		{runevents.StepSkipped, "apply", `{"reason":"STALE"}`, "because of STALE"},
		{runevents.StepFailed, "apply", `{"error":{"code":"X","message":"away"}}`, "X: away"},
		{runevents.StepCompleted, machine.StepDuplicate, `{"duplicate":true}`,
			"the key was accepted before"},
		{runevents.StepCompleted, machine.StepDuplicate, `{"duplicate":false}`, "the key is free"},
		{runevents.StepCompleted, machine.StepStale, `{"passed":false,"actualDecisionEpoch":7}`,
			"the town is at day 7 and not as the agent saw it"},
		{runevents.StepCompleted, machine.StepPrecondition,
			`{"passed":false,"failures":[{"detail":"no wall"},{"detail":"no gate"}]}`, "no wall"},
		{runevents.StepCompleted, machine.StepPrecondition, `{"passed":true}`, "passed"},
		{runevents.StepCompleted, machine.StepApply, `{"postExecutionDecisionEpoch":8}`,
			"the town is at day 8"},
		{runevents.StepCompleted, "lay stones", `{"stones":3}`, `{"stones":3}`},
		{runevents.StepStarted, "apply", `{}`, `{}`},
		{"Told", "", `{"command":"project advance"}`, `{"command":"project advance"}`},
		{runevents.RunStarted, "", `{"command":3}`, `{"command":3}`},
	} {
		e := runevents.Record{Write: runevents.Write{EventType: row.event, StepID: row.step,
			Payload: []byte(row.payload)}}
		assert.Equal(t, row.want, a.sense(&e), "%s %s", row.event, row.payload)
	}
	e := runevents.Record{Write: runevents.Write{EventType: runevents.StepCompleted,
		StepID: machine.StepDuplicate, Payload: []byte(`{"by":"us"}`)}, AppendedBy: "mod"}
	assert.Equal(t, `{"by":"us"}`, a.sense(&e), "a step of another producer")
}
