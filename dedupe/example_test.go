package dedupe_test

import (
	"fmt"

	"worldengine/dedupe"
)

// The receipt of a key names the accepted handoff and its result.
func ExampleRead() {
	result := `{"resultId": "result_1", "handoffId": "handoff_1", "idempotencyKey": "key-1",
		"reasonCode": "EXECUTED", "status": "executed"}`
	receipt, err := dedupe.Read("town-threatened", 42, "run-1", []byte(result))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.Key, receipt.HandoffID, receipt.ResultID, receipt.ReasonCode)
	// Output:
	// key-1 handoff_1 result_1 EXECUTED
}
