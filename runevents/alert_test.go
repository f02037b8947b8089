package runevents_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// The contracts fix some severities; an unknown code has P2.
func TestAlertCode_Severity(t *testing.T) {
	t.Parallel()
	for code, want := range map[runevents.AlertCode]runevents.Severity{
		"PROJECTOR_LAG_HIGH": "P2", "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED": "P2",
		"PROJECTOR_CAUSAL_VIOLATION": "P3", "EVENT_BUS_DELIVERY_FAILED": "P1", "UNKNOWN": "P2",
	} {
		require.Equal(t, want, code.Severity(), code)
	}
}

// Each alert has a meaning and advice. Only alerts about a run's events are once per run.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var once []runevents.AlertCode
	seen := map[runevents.AlertCode]bool{}
	for _, spec := range runevents.Alerts() {
		require.False(t, seen[spec.Code], spec.Code)
		seen[spec.Code] = true
		require.NotEmpty(t, spec.Means, spec.Code)
		require.NotEmpty(t, spec.Todo, spec.Code)
		require.Contains(t, []runevents.Severity{"P1", "P2", "P3"}, spec.Severity, spec.Code)
		if spec.Code.OncePerRun() {
			once = append(once, spec.Code)
		}
	}
	require.ElementsMatch(t, []runevents.AlertCode{runevents.InvalidTransition,
		runevents.CausalViolation, runevents.NonContiguousFetch}, once)
}

func TestAlert_ID(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]runevents.Alert{
		"C||a":    {At: "a"},
		"C||h":    {HandoffID: "h", At: "a"},
		"C|r|":    {TownID: "t", At: "a"},
		"C|r|t|s": {TownID: "t", Since: "s"},
		"C|r|d":   {DeadLetter: "d"},
		"C|r|h":   {DeadLetter: "d", HandoffID: "h"},
		"C|r|h|s": {TownID: "t", HandoffID: "h", Since: "s"},
		"C|r|e":   {DeadLetter: "d", HandoffID: "h", EventID: "e"},
		"C|r|7":   {EventID: "e", LogSeq: 7},
	} {
		a.Code, a.RunID = "C", strings.Split(want, "|")[1]
		require.Equal(t, want, a.ID())
	}
}
