package apply

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
)

// Each constant of type Binding has its row, in the same order, with all facts that the engine asks for.
func TestBinding_Spec(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "binding.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var declared []Binding
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && isBinding(spec.Type) {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			declared = append(declared, Binding(text))
		}
		return true
	})
	require.Equal(t, declared, Bindings())
	require.Zero(t, Binding("unheard-of").Spec())
	for _, b := range Bindings() {
		spec := b.Spec()
		require.Equal(t, b, spec.Binding)
		if spec.BuiltIn {
			require.Equal(t, BindingSpec{Binding: b, BuiltIn: true}, spec)
			continue
		}
		require.NotEmpty(t, spec.Game)
		require.True(t, MayBeApplied(spec.InDoubt))
		require.Subset(t, spec.Failures, []handoff.ReasonCode{spec.InDoubt, ReasonGameUnavailable})
	}
}

func isBinding(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "Binding"
}
