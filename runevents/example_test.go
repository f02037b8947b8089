package runevents_test

import (
	"fmt"

	"worldengine/runevents"
)

// The status of a run follows from its events.
func ExampleNextRunStatus() {
	status := runevents.RunStatusPending
	for _, event := range []runevents.EventType{runevents.RunQueued, runevents.RunStarted, runevents.RunQueued} {
		next, valid := runevents.NextRunStatus(status, event)
		fmt.Println(event, next, valid)
		status = next
	}
	// Output:
	// RunQueued PENDING true
	// RunStarted RUNNING true
	// RunQueued PENDING false
}

// Two sends of an event have the same key, so it is stored once.
func ExampleIdempotencyKey() {
	fields := runevents.KeyFields{RunID: "run-1", EventType: runevents.StepStarted, StepID: "apply", LogicalAttemptID: 1}
	fmt.Println(runevents.IdempotencyKey(fields))
	// Output:
	// 58f8019ee9c4e4b4e36a5cb3e4200e68b63d17631e571ebc737a54babb8bf425
}

// A projection goes on from a snapshot with the later events. An invalid one changes nothing, and gives an alert.
func ExampleIncremental() {
	snapshot := runevents.NewSnapshot("run-1")
	for i, event := range []runevents.EventType{runevents.RunStarted, runevents.RunCompleted, runevents.RunFailed} {
		record := runevents.Record{RunSeq: int64(i + 1), Write: runevents.Write{RunID: "run-1", EventType: event}}
		record.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{RunID: "run-1", EventType: event})
		var alerts []runevents.Alert
		snapshot, alerts, _ = runevents.Incremental(snapshot, []runevents.Record{record})
		fmt.Println(snapshot.Status, snapshot.LastEventSeq, len(alerts))
	}
	// Output:
	// RUNNING 1 0
	// COMPLETED 2 0
	// COMPLETED 3 1
}
