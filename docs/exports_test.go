package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// architecture.md has the number of the exported names of each package that others import, methods not counted, so that
// a name is public by decision.
func TestExports_Counted(t *testing.T) {
	t.Parallel()
	counted := regexp.MustCompile("`([a-z/]+)` \\(([0-9]+)\\)").FindAllStringSubmatch(read(t, "architecture.md"), -1)
	require.Len(t, counted, 12)
	for _, c := range counted {
		names := exported(t, "../"+c[1])
		require.Equal(t, c[2], strconv.Itoa(len(names)), "%s exports %v", c[1], names)
	}
}

// exported returns the names that the package in a directory exports.
func exported(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.go")
	require.NoError(t, err)
	add := func(idents ...*ast.Ident) {
		for _, ident := range idents {
			if ident.IsExported() {
				names = append(names, ident.Name)
			}
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						add(s.Names...)
					}
				}
			}
		}
	}
	return names
}
