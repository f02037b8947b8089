package runevents_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// keyVector is an entry of RunEvents.v2.0.1.idempotency_vectors.json. The first five are from the
// contract's appendix B; another program hashed the others.
type keyVector struct {
	Name              string
	RunID             string
	StepID            *string
	StepIDNormalized  string
	LogicalAttemptID  int64
	EventType         runevents.EventType
	PlanID            string
	PlanVersion       string
	Preimage          string
	ExpectedSHA256Hex string
}

func keyVectors(t *testing.T) []keyVector {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata",
		"RunEvents.v2.0.1.idempotency_vectors.json"))
	require.NoError(t, err)
	var vectors []keyVector
	require.NoError(t, json.Unmarshal(raw, &vectors))
	return vectors
}

func (v *keyVector) fields() runevents.KeyFields {
	f := runevents.KeyFields{
		RunID: v.RunID, LogicalAttemptID: v.LogicalAttemptID, EventType: v.EventType,
		PlanID: v.PlanID, PlanVersion: v.PlanVersion,
	}
	if v.StepID != nil {
		f.StepID = *v.StepID
	}
	return f
}

// The vectors, the contract's own five and another program's, cover section 3.3.
func TestIdempotencyKey_Vectors(t *testing.T) {
	t.Parallel()
	vectors := keyVectors(t)
	require.GreaterOrEqual(t, len(vectors), 25)
	levels, attempts, versions := map[bool]int{}, map[int64]bool{}, map[string]bool{}
	digests := map[string]bool{}
	for _, v := range vectors {
		f := v.fields()
		require.Equal(t, v.Preimage, f.Preimage(), v.Name)
		require.Equal(t, v.ExpectedSHA256Hex, runevents.IdempotencyKey(f), v.Name)

		// The file itself: six fields, five delimiters, and the digest of the preimage.
		parts := strings.Split(v.Preimage, "|")
		require.Len(t, parts, 6, v.Name)
		require.Equal(t, v.StepIDNormalized, parts[1], v.Name)
		if v.StepID == nil {
			require.Equal(t, "RUN", parts[1], v.Name)
		}
		sum := sha256.Sum256([]byte(v.Preimage))
		require.Equal(t, v.ExpectedSHA256Hex, hex.EncodeToString(sum[:]), v.Name)
		levels[v.StepID == nil]++
		attempts[v.LogicalAttemptID], versions[v.PlanVersion] = true, true
		digests[v.ExpectedSHA256Hex] = true
	}
	require.Greater(t, min(levels[true], levels[false], len(attempts), len(versions)), 5)
	require.Len(t, digests, len(vectors), "no preimage twice")
	for i, digest := range []string{ // the contract's
		"7f4b974658a54fb2aee9ecb9cefebd2eec27f3fd01f0f8c0d031dfc4a5b96e3c",
		"204197f81e5dc1a8491d8e411c440a730c51a741cd48a74863d3e5c4c452640d",
		"599945c1a8023ece5d2ae5132a4397b8cfbe9fa1c4c08d6fc4193a9bd9a2ebcd",
		"b5a178e6f30962ca3d17b573c0d4c5f96d7623be5fe62a972644785fc05a003b",
		"6bfdbe26d62eac0c00cf2683aae31115e76e4d33d515e39957627be091367b31",
	} {
		require.Equal(t, digest, vectors[i].ExpectedSHA256Hex)
	}
}

func TestKeyFields_Validate(t *testing.T) {
	t.Parallel()
	ofRun := runevents.KeyFields{
		RunID: "run", LogicalAttemptID: 1, EventType: runevents.RunStarted,
		PlanID: "plan", PlanVersion: "1",
	}
	for says, change := range map[string]func(f *runevents.KeyFields){
		"":                       func(*runevents.KeyFields) {},
		"StepStarted needs":      func(f *runevents.KeyFields) { f.EventType = runevents.StepStarted },
		"RunStarted has no":      func(f *runevents.KeyFields) { f.StepID = "s" },
		"runId must not be":      func(f *runevents.KeyFields) { f.RunID = "a|b" },
		"runId must":             func(f *runevents.KeyFields) { f.RunID = "" },
		"stepId must not":        func(f *runevents.KeyFields) { f.EventType, f.StepID = "StepStarted", "|" },
		"eventType must not be":  func(f *runevents.KeyFields) { f.EventType = "Cost|" },
		"eventType must":         func(f *runevents.KeyFields) { f.EventType = "" },
		"planId must not be":     func(f *runevents.KeyFields) { f.PlanID = "|p" },
		"planId must":            func(f *runevents.KeyFields) { f.PlanID = "" },
		"planVersion must not":   func(f *runevents.KeyFields) { f.PlanVersion = "1|2" },
		"logicalAttemptId start": func(f *runevents.KeyFields) { f.LogicalAttemptID = 0 },
	} {
		f := ofRun
		change(&f)
		if says != "" {
			require.ErrorContains(t, f.Validate(), says)
			continue
		}
		require.NoError(t, f.Validate())
		for _, event := range []runevents.EventType{"StepStarted", "CostAttributed", "StepHeartbeat"} {
			f.EventType, f.StepID = event, map[bool]string{true: "s"}[event != "CostAttributed"]
			require.NoError(t, f.Validate(), event)
		}
	}
}
