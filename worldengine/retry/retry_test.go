package retry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// Only a run whose command is known not to be applied is retried
// (docs/adr/0026-a-retry-is-another-run.md); each refusal has the run's end.
func TestWhichEndsAreRetried(t *testing.T) {
	t.Parallel()
	const h = `{"handoffId":"h"}`
	ended := func(kind commitlog.Kind, result string) *commitlog.Record {
		return &commitlog.Record{Kind: kind, Handoff: []byte(h), Result: []byte(result)}
	}
	failed := func(reason string) *commitlog.Record {
		return ended(commitlog.KindHandoff, `{"status":"failed","reasonCode":"`+reason+`"}`)
	}
	failedRetry := failed("PLUGIN_UNAVAILABLE")
	failedRetry.RetryOf = &apply.RetryOf{RunID: "run-1", LogSeq: 7}
	staleRetry := ended(commitlog.KindRefused,
		`{"status":"stale","reasonCode":"STALE_DECISION_EPOCH"}`)
	staleRetry.RetryOf = &apply.RetryOf{RunID: "run-1", LogSeq: 7}
	for name, c := range map[string]struct {
		end  *commitlog.Record
		code wire.Code
		says string
	}{
		"nobody was reached":          {failed("PLUGIN_UNAVAILABLE"), "", ""},
		"a retry that reached nobody": {failedRetry, "", ""},
		"no answer in time":           {failed("PLUGIN_TIMEOUT"), wire.CodeRunInDoubt, "apply it twice"},
		"an impossible state": {failed("PLUGIN_STATE_INVALID"), wire.CodeRunInDoubt,
			"put the town"},
		"a console in doubt": {failed("RCON_IN_DOUBT"), wire.CodeRunInDoubt, "look at the game"},
		"the game refused":   {failed("PROJECT_BLOCKED"), wire.CodeRunNotRetryable, "was refused"},
		"executed": {
			ended(commitlog.KindHandoff, `{"status":"executed","reasonCode":"EXECUTED"}`),
			wire.CodeRunNotRetryable, "nothing to retry"},
		"a duplicate": {
			ended(commitlog.KindRefused, `{"status":"duplicate","reasonCode":"DUPLICATE_HANDOFF"}`),
			wire.CodeRunNotRetryable, "repeated another run"},
		"stale": {
			ended(commitlog.KindRefused, `{"status":"stale","reasonCode":"STALE_DECISION_EPOCH"}`),
			wire.CodeRunNotRetryable, "its key is free"},
		"a retry that was stale": {staleRetry, wire.CodeRunNotRetryable, "run-1"},
		"waits for an approval": {
			ended(commitlog.KindAsked, `{"status":"rejected","reasonCode":"APPROVAL_REQUIRED"}`),
			wire.CodeRunNotRetryable, "its key is free"},
		"cancelled": {
			&commitlog.Record{Kind: commitlog.KindCancelled}, wire.CodeRunNotRetryable,
			"was cancelled"},
		"the run of a signal": {
			&commitlog.Record{Kind: commitlog.KindControl}, wire.CodeRunNotRetryable, "a signal"},
		"a damaged result": {
			ended(commitlog.KindHandoff, `{"status":`), wire.CodeRunNotRetryable,
			"handoffctl fsck"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusal := refusalOf(c.end)
			if c.code == "" {
				assert.Nil(t, refusal)
				return
			}
			require.NotNil(t, refusal)
			assert.Equal(t, c.code, refusal.Code)
			assert.Contains(t, refusal.Message, c.says)
		})
	}
}

// Of one run's retries one is the first, and an expired receipt leaves the key to its agent.
func TestTheKeyHasTheResultStill(t *testing.T) {
	t.Parallel()
	failed := Failed{RetryOf: apply.RetryOf{RunID: "run-1"}}
	assert.Nil(t, failed.Judge(&dedupe.Receipt{RunID: "run-1"}))
	later := failed.Judge(&dedupe.Receipt{RunID: "run-2"})
	require.NotNil(t, later)
	assert.Equal(t, wire.CodeRunRetried, later.Code)
	assert.Contains(t, later.Message, "run-2")
	expired := failed.Judge(nil)
	require.NotNil(t, expired)
	assert.Equal(t, wire.CodeRunNotRetryable, expired.Code)
	assert.Contains(t, expired.Message, "its key is free")
}
