package schemas_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// handoff returns the bytes of a valid handoff that proposes to accept a mission.
func handoff(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", "handoffs.valid.json"))
	require.NoError(t, err)
	var vectors []struct{ Handoff json.RawMessage }
	require.NoError(t, json.Unmarshal(raw, &vectors))
	return vectors[0].Handoff
}

// example returns the tree of the first example of a schema; the caller may change it.
func example(t testing.TB, n schemas.Name) map[string]any {
	t.Helper()
	src, err := schemas.Source(n)
	require.NoError(t, err)
	var doc struct{ Examples []map[string]any }
	require.NoError(t, json.Unmarshal(src, &doc))
	require.NotEmpty(t, doc.Examples, "%s has no examples", n)
	return doc.Examples[0]
}

// refusal asserts that err is a *ValidationError and returns it.
func refusal(t testing.TB, err error) *schemas.ValidationError {
	t.Helper()
	require.Error(t, err)
	ve, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(t, ok, "%T: %v", err, err)
	require.NotEmpty(t, ve.Violations)
	return ve
}

func violation(path, message string) schemas.Violation {
	return schemas.Violation{Path: path, Message: message}
}
