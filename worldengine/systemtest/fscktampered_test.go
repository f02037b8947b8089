package systemtest_test

import (
	"testing"
)

// tamperedPending are broken rules about pending commands.
var tamperedPending = []tamper{
	{"a handoff that is none", change("pending", 6, `"advisory":true`, `"advisory":false`)},
	{"an expected state that is none",
		change("pending", 6, `"expected":{"day":`, `"expected":{"night":`)},
	{"an expected state of another town",
		change("pending", 6, `"townId":"t"},"run"`, `"townId":"u"},"run"`)},
	{"an expected state that is not canonical",
		change("pending", 6, `"expected":{`, `"expected":{ `)},
	{"an expected state of another day",
		change("pending", 6, `"expected":{"day":24`, `"expected":{"day":25`)},
	{"a handoff of another state", swap("pending", 3, "handoff", "expected", "pending", 0)},
	{"nobody applies it", change("pending", 6, `"via":"plugin"`, `"via":"local"`)},
	{"no ids", replace("pending", 6, "eventIds", "accepted", `"eventIds":[]`)},
	{"another run", change("pending", 6, `"run":{"runId":"`, `"run":{"runId":"0`)},
	{"events that are not counted", change("pending", 6, `"emitted":8`, `"emitted":9`)},
	{"an attempt before the first", change("pending", 6, `"attempt":1`, `"attempt":0`)},
	{"an attempt too far", change("pending", 2, `"attempt":3`, `"attempt":4`)},
	{"an attempt again", change("pending", 1, `"attempt":2`, `"attempt":1`)},
	{"a deadline before the attempt", change("pending", 6, `"deadline":"2`, `"deadline":"1`)},
	{"no reason for another attempt", change("pending", 1, `"last":{`, `"lost":{`)},
	{"a request forgotten", change("pending", 2, `"reached":true,`, ``)},
	{"another attempt at something else", change("pending", 1, `"emitted":8`, `"emitted":7`)},
	{"a state that moves while pending",
		change("pending", 1, `"snapshot":{"day":15`, `"snapshot":{"day":16`)},
	{"a put while pending", change("pending", 1, `"kind":"pending"`, `"kind":"put"`)},
	{"nothing pending", change("pending", 6, `"pending":{`, `"pended":{`)},
	{"a signal that takes it away", change("control", 4, `"pending":{`, `"pended":{`)},
	{"a signal that changes it", change("control", 4, `"emitted":8`, `"emitted":7`)},
	{"a conclusion that leaves it", func(t *testing.T, log logMessages) (logMessages, uint64) {
		pending := member(t, log[nth(t, log, "control", 4)].Data, "pending", "snapshot")
		return change("handoff", 2, `"townId":"t"`, `"townId":"t",`+pending)(t, log)
	}},
	{"an attempt of nothing", remove("pending", 0)},
	{"a conclusion of nothing", change("pending", 5, `"pending":{`, `"pended":{`)},
	{"a conclusion too early", remove("pending", 2)},
}
