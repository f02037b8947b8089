// Package schemastest is shared by tests of refused payloads, and of scenarios in text.
package schemastest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// Paths asserts that err refuses a payload by its schema, and returns the paths.
func Paths(t testing.TB, err error) (paths []string) {
	t.Helper()
	invalid, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, schemas.CodeSchemaValidation, invalid.Code)
	for _, v := range invalid.Violations {
		require.NotEmpty(t, v.Message)
		paths = append(paths, v.Path)
	}
	return paths
}
