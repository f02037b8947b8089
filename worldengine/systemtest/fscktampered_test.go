package systemtest_test

import (
	"testing"
)

const eventDiffers = "the payload of an event differs from the record: "

// tamperedPending are broken rules about what is pending.
var tamperedPending = []tamper{
	{"a handoff that is none", change("pending", 6, `"advisory":true`, `"advisory":false`),
		[]string{
			"the pending handoff, or the state expected of it, is not valid",
			"a signal changed what is pending",
		}},
	{"an expected state that is none",
		change("pending", 6, `"expected":{"day":`, `"expected":{"night":`), []string{
			"the pending handoff, or the state expected of it, is not valid",
			"a signal changed what is pending",
		}},
	{"an expected state of another town",
		change("pending", 6, `"townId":"t"},"run"`, `"townId":"u"},"run"`), []string{
			"the expected state is that of another town",
			"a signal changed what is pending",
		}},
	{"an expected state that is not canonical",
		change("pending", 6, `"expected":{`, `"expected":{ `),
		[]string{
			"the expected state is not in its canonical form",
		}},
	{"an expected state of another day",
		change("pending", 6, `"expected":{"day":24`, `"expected":{"day":25`), []string{
			"the expected state is not one day later",
			"a signal changed what is pending",
		}},
	{"a handoff of another state", swap("pending", 3, "handoff", "expected", "pending", 0),
		[]string{
			"the pending handoff was not made from the town's state",
			"the run is of another plan than the pending handoff",
			"another attempt changed what is pending",
		}},
	{"nobody applies it", change("pending", 6, `"via":"plugin"`, `"via":"local"`), []string{
		"the pending handoff names no plugin or console that applies it",
		"a signal changed what is pending",
	}},
	{"no ids", replace("pending", 6, "eventIds", "accepted", `"eventIds":[]`), []string{
		"the record has not an id for each of its next events",
		"a signal changed what is pending",
	}},
	{"another run", change("pending", 6, `"run":{"runId":"`, `"run":{"runId":"0`), []string{
		"the record has not an id for each of its next events",
		"the pending handoff is of another run than its events",
		"a signal changed what is pending",
	}},
	{"events that are not counted", change("pending", 6, `"emitted":8`, `"emitted":9`), []string{
		"the record does not count the events of its run",
		"a signal changed what is pending",
	}},
	{"an attempt before the first", change("pending", 6, `"attempt":1`, `"attempt":0`), []string{
		"an attempt is not counted from 1",
		"the record has not an id for each of its next events",
		"a signal changed what is pending",
	}},
	{"an attempt too far", change("pending", 2, `"attempt":3`, `"attempt":4`), []string{
		"the attempt is not the next one",
		"the attempt that was concluded is not the pending one",
	}},
	{"an attempt again", change("pending", 1, `"attempt":2`, `"attempt":1`), []string{
		"an attempt does not record the outcome of the one before it",
		"another attempt changed what is pending",
		"the attempt is not the next one",
	}},
	{"a deadline before the attempt", change("pending", 6, `"deadline":"2`, `"deadline":"1`),
		[]string{
			"an attempt ends before it begins",
			"a signal changed what is pending",
		}},
	{"no reason for another attempt", change("pending", 1, `"last":{`, `"lost":{`), []string{
		"an attempt does not record the outcome of the one before it",
	}},
	{"a request forgotten", change("pending", 2, `"reached":true,`, ``), []string{
		"another attempt does not keep that a request may have reached the game",
	}},
	{"another attempt at something else", change("pending", 1, `"emitted":8`, `"emitted":7`),
		[]string{
			"another attempt changed what is pending",
			"another attempt changed what is pending",
		}},
	{"a state that moves while pending",
		change("pending", 1, `"snapshot":{"day":15`, `"snapshot":{"day":16`), []string{
			"the header is not the hash of the stored state",
			"the header is not the day of the stored state",
			"a record that cannot change the state changed it",
			"the town's day was lowered",
			"a record that cannot change the state changed it",
		}},
	{"a put while pending", change("pending", 1, `"kind":"pending"`, `"kind":"put"`), []string{
		"the header does not name the kind of the record",
		"a record that ends an application has a pending handoff",
		"the town was put while a command was being applied to it",
	}},
	{"nothing pending", change("pending", 6, `"pending":{`, `"pended":{`), []string{
		"the record has no pending handoff",
		"a signal changed what is pending",
	}},
	{"a signal that takes it away", change("control", 4, `"pending":{`, `"pended":{`), []string{
		"a signal changed what is pending",
	}},
	{"a signal that changes it", change("control", 4, `"emitted":8`, `"emitted":7`), []string{
		"a signal changed what is pending",
	}},
	{"a conclusion that leaves it", func(t *testing.T, log logMessages) (logMessages, uint64) {
		pending := member(t, log[nth(t, log, "control", 4)].Data, "pending", "snapshot")
		return change("handoff", 2, `"townId":"t"`, `"townId":"t",`+pending)(t, log)
	}, []string{
		"a record that ends an application has a pending handoff",
		"a handoff was judged while another was being applied to its town",
		"a handoff was judged while another was being applied to its town",
	}},
	{"an attempt of nothing", remove("pending", 0), []string{
		"the commit was not guarded by the town's message before it",
		"an attempt after the first follows no attempt",
	}},
	{"a conclusion of nothing", change("pending", 5, `"pending":{`, `"pended":{`), []string{
		"the record has no pending handoff",
		"the run that ends was not pending",
	}},
	{"a conclusion too early", remove("pending", 2), []string{
		"the commit was not guarded by the town's message before it",
		"the attempt that was concluded is not the pending one",
	}},
}
