package runevents_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func keyV1Of(r runevents.Record) string {
	return runevents.IdempotencyKeyV1(runevents.KeyFields{
		RunID: r.RunID, StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID,
		EventType: r.EventType, PlanID: r.PlanID, PlanVersion: r.PlanVersion,
	})
}

func TestTheKeyOfV1(t *testing.T) {
	t.Parallel()
	for _, v := range keyVectors(t) {
		preimage := fmt.Sprintf("%s|%s|%d|%s|%s", v.RunID, v.StepIDNormalized, v.LogicalAttemptID,
			v.EventType, v.PlanVersion)
		sum := sha256.Sum256([]byte(preimage))
		require.Equal(t, hex.EncodeToString(sum[:]), runevents.IdempotencyKeyV1(v.fields()), v.Name)
		require.NotEqual(t, v.ExpectedSHA256Hex, runevents.IdempotencyKeyV1(v.fields()))
	}
	// One digest from another program: printf '%s' 'r|RUN|1|RunStarted|2' | sha256sum
	require.Equal(t, "b1a77ef02922db8f5ad702d306126beb5ae6ae88e81b84b3cef0ed835a33929d", runevents.IdempotencyKeyV1(runevents.KeyFields{
		RunID: "r", LogicalAttemptID: 1, EventType: "RunStarted", PlanID: "not in it", PlanVersion: "2",
	}))
}

func TestVerifyKey(t *testing.T) {
	t.Parallel()
	for _, e := range []runevents.Event{of("RunStarted"), on("StepFailed", "a", 3), of("CostAttributed")} {
		r := told(e)[0]
		v2 := r.IdempotencyKey
		for key, want := range map[string]runevents.KeyVersion{
			v2: runevents.KeyV2, keyV1Of(r): runevents.KeyV1,
			strings.ToUpper(v2): "", v2[:63]: "", "": "", strings.Repeat("0", 64): "",
		} {
			r.IdempotencyKey = key
			version, ok := runevents.VerifyKey(r)
			require.Equal(t, want, version)
			require.Equal(t, want != "", ok)
		}
	}
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	v2 := told(of("RunStarted"), on("StepStarted", "a", 2), of("CostAttributed"))
	for _, r := range v2 {
		require.Equal(t, r, runevents.Normalize(r), "what is v2 stays")

		old := r
		old.IdempotencyKey = keyV1Of(r)
		require.Equal(t, r, runevents.Normalize(old))
		require.Equal(t, keyV1Of(r), old.IdempotencyKey, "the argument stays too")

		foreign := r
		foreign.IdempotencyKey = strings.Repeat("ab", 32)
		require.Equal(t, foreign, runevents.Normalize(foreign), "the key decides, whatever made it")
	}
	bare := v2[0]
	bare.LogicalAttemptID, bare.EngineAttemptID, bare.PersistedAt = 0, 0, ""
	bare.IdempotencyKey = keyV1Of(v2[0])
	want := v2[0]
	want.EngineAttemptID, want.PersistedAt = 0, want.EmittedAt
	require.Equal(t, want, runevents.Normalize(bare))
}

// TestAStreamOfBothVersionsProjectsAsOneOfV2 is risk R2.
func TestAStreamOfBothVersionsProjectsAsOneOfV2(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	want, _ := project(t, records)
	for cut := 0; cut <= len(records); cut++ {
		mixed := append([]runevents.Record{}, records...)
		for i := range mixed[:cut] {
			mixed[i].IdempotencyKey = keyV1Of(mixed[i])
		}
		got, alerts := project(t, mixed)
		require.Empty(t, alerts)
		require.Equal(t, want, got)

		// The v2 producer tells what the v1 producer had told once more.
		for i := range records[:cut] {
			mixed = append(mixed, again(records[i], int64(100+i)))
		}
		got, alerts = project(t, mixed)
		require.Empty(t, alerts)
		got.LastEventSeq = want.LastEventSeq
		require.Equal(t, want, got)
	}
}

func TestNoProducerWritesAKeyOfV1(t *testing.T) {
	t.Parallel()
	for _, c := range courses {
		for _, r := range c.tell(t) {
			version, ok := runevents.VerifyKey(r)
			require.True(t, ok)
			require.Equal(t, runevents.KeyV2, version)
		}
	}
}

// TestEventsWithOneForeignKeyAreOne: the key is the authority, not what it was made of.
func TestEventsWithOneForeignKeyAreOne(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("RunPaused"))
	for i := range records {
		records[i].IdempotencyKey = "k"
	}
	s, alerts := project(t, records)
	require.Empty(t, alerts)
	require.Equal(t, runevents.RunRunning, s.Status)
	require.Equal(t, int64(2), s.LastEventSeq)
}
