package machine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each constant of type Kind has its row, in the same order. logtest.Facts compares the rows with records.
func TestKind_Spec(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var declared, rows []Kind
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && isKind(spec.Type) {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			declared = append(declared, Kind(text))
		}
		return true
	})
	for _, spec := range kindSpecs {
		rows = append(rows, spec.Kind)
		require.Equal(t, spec, spec.Kind.Spec())
		require.True(t, spec.Kind.Known())
	}
	require.Equal(t, declared, rows)
	require.Zero(t, Kind("unheard-of").Spec())
	require.False(t, Kind("unheard-of").Known())
}

func isKind(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "Kind"
}
