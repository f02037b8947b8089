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

func TestIdempotencyKey_Vectors(t *testing.T) {
	t.Parallel()
	vectors := keyVectors(t)
	require.GreaterOrEqual(t, len(vectors), 25)
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			f := vector.fields()
			require.Equal(t, vector.Preimage, f.Preimage())
			require.Equal(t, vector.ExpectedSHA256Hex, runevents.IdempotencyKey(f))

			// The file itself: six fields, five delimiters, and the digest of the preimage.
			parts := strings.Split(vector.Preimage, "|")
			require.Len(t, parts, 6)
			require.Equal(t, vector.StepIDNormalized, parts[1])
			if vector.StepID == nil {
				require.Equal(t, "RUN", parts[1])
			}
			sum := sha256.Sum256([]byte(vector.Preimage))
			require.Equal(t, vector.ExpectedSHA256Hex, hex.EncodeToString(sum[:]))
		})
	}
}

// TestIdempotencyKey_VectorsOfTheContract keeps the five from being edited away.
func TestIdempotencyKey_VectorsOfTheContract(t *testing.T) {
	t.Parallel()
	vectors := keyVectors(t)
	for i, want := range []struct{ name, digest string }{
		{"vector-1-step-started",
			"7f4b974658a54fb2aee9ecb9cefebd2eec27f3fd01f0f8c0d031dfc4a5b96e3c"},
		{"vector-2-run-started",
			"204197f81e5dc1a8491d8e411c440a730c51a741cd48a74863d3e5c4c452640d"},
		{"vector-3-step-failed-attempt-2",
			"599945c1a8023ece5d2ae5132a4397b8cfbe9fa1c4c08d6fc4193a9bd9a2ebcd"},
		{"vector-4-run-failed-plan-v3",
			"b5a178e6f30962ca3d17b573c0d4c5f96d7623be5fe62a972644785fc05a003b"},
		{"vector-5-step-skipped-customers-v1",
			"6bfdbe26d62eac0c00cf2683aae31115e76e4d33d515e39957627be091367b31"},
	} {
		require.Equal(t, want.name, vectors[i].Name)
		require.Equal(t, want.digest, vectors[i].ExpectedSHA256Hex)
	}
}

// TestIdempotencyKey_CoverageOfVectors is section 3.3.
func TestIdempotencyKey_CoverageOfVectors(t *testing.T) {
	t.Parallel()
	var runLevel, stepLevel int
	attempts, versions, digests := map[int64]bool{}, map[string]bool{}, map[string]string{}
	preimages := map[string]bool{}
	for _, v := range keyVectors(t) {
		if v.StepID == nil {
			runLevel++
		} else {
			stepLevel++
		}
		attempts[v.LogicalAttemptID], versions[v.PlanVersion] = true, true
		require.NotContains(t, digests, v.ExpectedSHA256Hex, v.Name)
		digests[v.ExpectedSHA256Hex] = v.Name
		preimages[v.Preimage] = true
	}
	require.Greater(t, runLevel, 5)
	require.Greater(t, stepLevel, 5)
	require.Greater(t, len(attempts), 5)
	require.Greater(t, len(versions), 5)
	require.Len(t, preimages, len(digests))
}

func TestKeyFields_Validate(t *testing.T) {
	t.Parallel()
	ofRun := runevents.KeyFields{
		RunID: "run", LogicalAttemptID: 1, EventType: runevents.RunStarted,
		PlanID: "plan", PlanVersion: "1",
	}
	ofStep := ofRun
	ofStep.EventType, ofStep.StepID = runevents.StepStarted, "a step"
	unknown := ofRun
	unknown.EventType = "CostAttributed"
	unknownOfStep := ofStep
	unknownOfStep.EventType = "StepHeartbeat"
	for _, good := range []runevents.KeyFields{ofRun, ofStep, unknown, unknownOfStep} {
		require.NoError(t, good.Validate(), "%+v", good)
	}
	for _, row := range []struct {
		name   string
		base   runevents.KeyFields
		change func(*runevents.KeyFields)
		says   string
	}{
		{"a step event without a step", ofStep, func(f *runevents.KeyFields) {
			f.StepID = ""
		}, "StepStarted needs a stepId"},
		{"a run event with a step", ofRun, func(f *runevents.KeyFields) {
			f.StepID = "s"
		}, "RunStarted has no stepId"},
		{"the delimiter in runId", ofRun, func(f *runevents.KeyFields) {
			f.RunID = "a|b"
		}, `runId must not be empty or contain '|'`},
		{"no runId", ofRun, func(f *runevents.KeyFields) { f.RunID = "" }, "runId"},
		{"the delimiter in stepId", ofStep, func(f *runevents.KeyFields) { f.StepID = "|" },
			"stepId"},
		{"the delimiter in eventType", unknown, func(f *runevents.KeyFields) {
			f.EventType = "Cost|"
		}, "eventType"},
		{"no eventType", unknown, func(f *runevents.KeyFields) { f.EventType = "" }, "eventType"},
		{"the delimiter in planId", ofRun, func(f *runevents.KeyFields) { f.PlanID = "|p" },
			"planId"},
		{"no planId", ofRun, func(f *runevents.KeyFields) { f.PlanID = "" }, "planId"},
		{"the delimiter in planVersion", ofRun, func(f *runevents.KeyFields) {
			f.PlanVersion = "1|2"
		}, "planVersion"},
		{"attempt 0", ofRun, func(f *runevents.KeyFields) { f.LogicalAttemptID = 0 },
			"logicalAttemptId"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := row.base
			row.change(&f)
			require.ErrorContains(t, f.Validate(), row.says)
		})
	}
}
