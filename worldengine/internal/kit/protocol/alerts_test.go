package protocol_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/protocol"
)

// The contracts fix some severities, which runevents sets itself; an unknown code has P2.
func TestLookupAlert_Severity(t *testing.T) {
	t.Parallel()
	for code, want := range map[runevents.AlertCode]runevents.Severity{
		"PROJECTOR_LAG_HIGH": "P2", "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED": "P2",
		"PROJECTOR_CAUSAL_VIOLATION": "P3", "EVENT_BUS_DELIVERY_FAILED": "P1", "UNKNOWN": "P2",
	} {
		require.Equal(t, want, protocol.LookupAlert(code).Severity, code)
	}
}

// Each alert has a meaning and advice.
func TestAlerts(t *testing.T) {
	t.Parallel()
	seen := map[runevents.AlertCode]bool{}
	for _, spec := range protocol.Alerts() {
		require.False(t, seen[spec.Code], spec.Code)
		seen[spec.Code] = true
		require.NotEmpty(t, spec.Means, spec.Code)
		require.NotEmpty(t, spec.Todo, spec.Code)
		require.Contains(t, []runevents.Severity{"P1", "P2", "P3"}, spec.Severity, spec.Code)
		severity := runevents.NewAlert(spec.Code, &runevents.Record{}, "").Severity
		require.Equal(t, spec.Severity, cmp.Or(severity, spec.Severity), spec.Code)
	}
}
