// Package sourcetest reads what Go files declare, for tests that demand a row for each constant.
package sourcetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Constants returns the values of a file's constants of a text type, in the order of the file.
func Constants[T ~string](t *testing.T, file, typeName string) (values []T) {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(source, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typeName {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			values = append(values, T(text))
		}
		return true
	})
	require.NotEmpty(t, values)
	return values
}
