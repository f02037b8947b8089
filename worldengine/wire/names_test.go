package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerbOf(t *testing.T) {
	t.Parallel()
	for _, verb := range Verbs() {
		require.Equal(t, verb, VerbOf(Subject("main", verb)))
	}
	require.Empty(t, VerbOf("worldengine.v1.main"))
}

// Other programs, stored streams and configurations have these names.
func TestNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"WORLD_w_LOG", "WORLD_w_RUNEVENTS",
		"WORLD_w_DEADLETTER", "WORLD_w_ALERTS",
	}, Streams("w"))
	for want, got := range map[string]string{
		"main":                         DefaultWorld,
		"worldengine":                  ServiceName,
		"worldengine.v1.main.handoff":  Subject("main", Handoff),
		"worldengine.v1.main.town.get": Subject("main", TownGet),
		"runevents.v2.w.Town%201.r1":   EventSubject("w", TownToken("Town 1"), "r1"),
		"world.w.refused.a":            RefusedSubject("w", "a"),
		"Run-Id":                       RunIDHeader,
		"Retry-After-Ms":               RetryAfterHeader,
		"Event-Type":                   EventTypeHeader,
		"WORLD_w_RESTORING":            RestoringStream("w"),
		"world.w.log.t":                LogSubject("w", "t"),
		"world.w.control":              ControlSubject("w"),
		"world.w.signal":               SignalSubject("w"),
		"world.w.run.r":                RunSubject("w", "r"),
		"world.w.restoring":            RestoringSubject("w"),
		"worldengine.v1.w.apply.t":     ApplySubject("w", "t"),
		"worldengine.v1.w.events.t":    EventsSubject("w", "t"),
		"alerts.v1.w.CODE":             AlertSubject("w", "CODE"),
		"world.w.acknowledged.7":       AcknowledgedSubject("w", "7"),
		"deadletter.v1.w.S.7.0":        DeadLetterSubject("w", "S", "7", "0"),
		"clients.worldengine.v1.w.x":   CrossedSubject("worldengine.v1.w.x"),
		"astray.runevents.v2.w.$1.$2":  AstraySubject("runevents.v2.w.*.*"),
		"astray.alerts.v1.w.>":         AstraySubject("alerts.v1.w.>"),
		"Nats-Service-Error-Code":      ErrorCodeHeader,
		"Nats-Service-Error":           ErrorHeader,
		"Nats-Request-Info":            UserHeader,
		"Actor-Id":                     ActorHeader,
		"At":                           AtHeader,
		"Town-Token":                   TownTokenHeader,
		"Key":                          KeyHeader,
		"Result":                       ResultHeader,
		"Run-Seqs":                     RunSeqsHeader,
		"Run-Moves":                    RunMovesHeader,
		"Type":                         TypeHeader,
		"Pending":                      PendingHeader,
		"Paused":                       PausedHeader,
		"Removed":                      RemovedHeader,
		"Closing":                      ClosingHeader,
		"Inconsistent":                 InconsistentHeader,
		"Log-Seq":                      LogSeqHeader,
		"Log-Part":                     LogPartHeader,
		"Dead-Letter-Reason":           DeadLetterReasonHeader,
		"Original-Subject":             OriginalSubjectHeader,
		"Original-Size":                OriginalSizeHeader,
	} {
		require.Equal(t, want, got)
	}
}

func TestIsInbox(t *testing.T) {
	t.Parallel()
	for _, inbox := range []string{"_INBOX.a.b", "_INBOX_ada.x", "_R_.abc"} {
		require.True(t, IsInbox(inbox), inbox)
	}
	for _, other := range []string{"", "_INBOX", "_R_", "x._INBOX.a", ApplySubject("w", "t")} {
		require.False(t, IsInbox(other), other)
	}
}
