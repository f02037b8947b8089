package dedupe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
)

// A receipt has the ids of the result, and its place in the log; other bytes are an error.
func TestRead(t *testing.T) {
	t.Parallel()
	result := []byte(`{"resultId":"result-1","handoffId":"handoff-1","idempotencyKey":"key-1",` +
		`"reasonCode":"EXECUTED","status":"executed"}`)
	receipt, err := dedupe.Read("Town 1", 7, "run-1", result)
	require.NoError(t, err)
	require.Equal(t, &dedupe.Receipt{
		TownID: "Town 1", Key: "key-1", LogSeq: 7, RunID: "run-1", HandoffID: "handoff-1",
		ResultID: "result-1", ReasonCode: handoff.ReasonExecuted, Result: result,
	}, receipt)
	for _, damaged := range []string{"", "{", `{"resultId":7}`} {
		_, err := dedupe.Read("Town 1", 7, "run-1", []byte(damaged))
		require.Error(t, err, damaged)
	}
}
