package stepper

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
)

// Each purpose of the machine has its row, so that none gets the least room by mistake.
func TestPurposeStorage_Complete(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../../core/machine/purpose.go", nil,
		parser.SkipObjectResolution)
	require.NoError(t, err)
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			require.Contains(t, purposeStorage, machine.Purpose(text))
			declared++
		}
		return true
	})
	require.Len(t, purposeStorage, declared)
}
