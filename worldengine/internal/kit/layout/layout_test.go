package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

func TestVerbOf(t *testing.T) {
	t.Parallel()
	for _, verb := range protocol.Verbs() {
		require.Equal(t, verb, VerbOf(wire.Subject("main", verb)))
	}
	require.Empty(t, VerbOf("worldengine.v1.main"))
}

func TestWorldOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, "main", WorldOf(wire.Subject("main", wire.TownGet)))
	require.Equal(t, wire.WorldsToken, WorldOf(wire.Subject("main", wire.WorldsList)))
}

// Other programs, stored streams and configurations have these names.
func TestNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"WORLD_w_LOG", "WORLD_w_RUNEVENTS",
		"WORLD_w_DEADLETTER", "WORLD_w_ALERTS",
	}, Streams("w"))
	for want, got := range map[string]string{
		"worldengine":                 protocol.ServiceName,
		"world.w.refused.a":           RefusedSubject("w", "a"),
		"WORLD_w_RESTORING":           RestoringStream("w"),
		"world.w.log.t":               LogSubject("w", "t"),
		"world.w.control":             PauseSubject("w"),
		"world.w.signal":              SignalSubject("w"),
		"world.w.run.r":               RunSubject("w", "r"),
		"world.w.restoring":           RestoringSubject("w"),
		"world.w.acknowledged.7":      AcknowledgedSubject("w", "7"),
		"deadletter.v1.w.S.7.0":       DeadLetterSubject("w", "S", "7", "0"),
		"clients.worldengine.v1.w.x":  ImportedSubject("worldengine.v1.w.x"),
		"astray.runevents.v2.w.$1.$2": DivertedSubject("runevents.v2.w.*.*"),
		"astray.alerts.v1.w.>":        DivertedSubject("alerts.v1.w.>"),
		"Nats-Request-Info":           UserHeader,
		"Actor-Id":                    ActorHeader,
		"At":                          AtHeader,
		"Town-Token":                  TownTokenHeader,
		"Key":                         KeyHeader,
		"Result":                      ResultHeader,
		"Run-Seqs":                    RunSeqsHeader,
		"Run-Moves":                   RunEventTypesHeader,
		"Type":                        TypeHeader,
		"Pending":                     PendingHeader,
		"Paused":                      PausedHeader,
		"Removed":                     RemovedHeader,
		"Closing":                     ClosingHeader,
		"Inconsistent":                InconsistentHeader,
		"Log-Seq":                     LogSeqHeader,
		"Log-Part":                    LogPartHeader,
		"Dead-Letter-Reason":          DeadLetterReasonHeader,
		"Original-Subject":            OriginalSubjectHeader,
		"Original-Size":               OriginalSizeHeader,
	} {
		require.Equal(t, want, got)
	}
}

func TestIsInbox(t *testing.T) {
	t.Parallel()
	for _, inbox := range []string{"_INBOX.a.b", "_INBOX_ada.x", "_R_.abc"} {
		require.True(t, IsInbox(inbox), inbox)
	}
	for _, other := range []string{"", "_INBOX", "_R_", "x._INBOX.a", wire.ApplySubject("w", "t")} {
		require.False(t, IsInbox(other), other)
	}
}

// The stored messages of a world can be another world's, and no other messages.
func TestRenameStored(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"world.main.log.t": "world.copy.log.t", "alerts.v1.main.X": "alerts.v1.copy.X",
		"world.mainland.log.t": "", "other.main.log": "",
	} {
		got, err := RenameStored(subject, "main", "copy")
		require.Equal(t, want, got)
		require.Equal(t, want == "", err != nil, subject)
	}
}
