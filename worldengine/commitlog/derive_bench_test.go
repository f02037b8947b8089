package commitlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// BenchmarkDeriveEvents derives the run events of a handoff's record that was handed over.
func BenchmarkDeriveEvents(b *testing.B) {
	run := &runevents.Run{Identity: runevents.Identity{
		RunID: uuid.NewString(), TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "proposal_0123456789abcdef", PlanVersion: "proposal.v2",
	}, FirstSeq: 1}
	for i := range 10 {
		run.Events = append(run.Events, runevents.Event{
			EventID: uuid.NewString(), EventType: runevents.StepCompleted,
			StepID:           fmt.Sprint("step-", i),
			LogicalAttemptID: 1, EmittedAt: runevents.Timestamp(time.Now()),
			Payload: []byte(`{"evaluated":true,"duplicate":false}`),
		})
	}
	rec := &Record{Kind: KindHandoff, TownID: "town", Run: run}
	msg, err := rec.Message("log.a", nil)
	require.NoError(b, err)
	h := NewHandover()
	h.Add(msg, rec)
	read, derive := h.Read(stored(msg)), DeriveEvents("main")
	b.ReportAllocs()
	for b.Loop() {
		messages, err := derive(read)
		if err != nil || len(messages) != 10 {
			b.Fatal(err)
		}
	}
}
