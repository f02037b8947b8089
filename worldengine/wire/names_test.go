package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Other programs have these names.
func TestNames(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"main":                         DefaultWorld,
		"worldengine.v1.main.handoff":  Subject("main", Handoff),
		"worldengine.v1.main.town.get": Subject("main", TownGet),
		"runevents.v2.w.Town%201.r1":   EventSubject("w", TownToken("Town 1"), "r1"),
		"Run-Id":                       RunIDHeader,
		"Retry-After-Ms":               RetryAfterHeader,
		"Event-Type":                   EventTypeHeader,
		"worldengine.v1.w.apply.t":     ApplySubject("w", "t"),
		"worldengine.v1.w.events.t":    EventsSubject("w", "t"),
		"alerts.v1.w.CODE":             AlertSubject("w", "CODE"),
		"Nats-Service-Error-Code":      ErrorCodeHeader,
		"Nats-Service-Error":           ErrorHeader,
	} {
		require.Equal(t, want, got)
	}
}
