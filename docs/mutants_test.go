//go:build mutants

package docs_test

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutants breaks the code of each row of conformance.csv once, and wants one of its named tests
// to fail. It does so with the transitions of a town, too. A function returns zero values at once, a text or a number
// is another one, and a schema takes everything. Each row is a subtest, by its line: -run 'TestMutants/^7$'.
func TestMutants(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(read(t, "conformance.csv"))).ReadAll()
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	seen := map[string]bool{}
	for i, row := range rows[1:] {
		obligation, code, proof := row[2], row[3], row[4]
		if unproven.MatchString(proof) || seen[code+proof] || strings.HasPrefix(code, "`testdata/") {
			continue // nothing that can be broken
		}
		seen[code+proof] = true
		t.Run(fmt.Sprint(i+2), func(t *testing.T) {
			overlay, what := map[string]string{}, ""
			for _, m := range chosen {
				if strings.HasPrefix(obligation, m.row) {
					overlay[filepath.Join(root, m.file)], what = m.source(t), m.file
				}
			}
			for _, name := range quoted.FindAllStringSubmatch(code, -1) {
				if len(overlay) == 0 {
					overlay, what = mutate(t, root, name[1]), name[1]
				}
			}
			require.NotEmpty(t, overlay, "no mutant of %s: choose one", code)
			require.True(t, killed(t, root, overlay, proof, what),
				"%s: the named tests pass although %s is broken: %s", obligation, what, proof)
		})
	}
	for _, m := range transitions {
		t.Run(m.name, func(t *testing.T) {
			require.True(t, killed(t, root, map[string]string{
				filepath.Join(root, m.file): m.source(t),
			}, m.proof, m.file), "%s pass although %s is broken: %s", m.proof, m.file, m.from)
		})
	}
}

// killed reports whether one of the tests in a proof fails with files in place of others.
func killed(t *testing.T, root string, files map[string]string, proof, what string) bool {
	dir, replace := t.TempDir(), map[string]string{}
	for path, source := range files {
		mutant := filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Base(path))
		require.NoError(t, os.WriteFile(mutant, []byte(source), 0o600))
		replace[path] = mutant
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, data, 0o600))
	tests := map[string][]string{}
	for _, name := range quoted.FindAllStringSubmatch(proof, -1) {
		pkg, test, err := split(name[1])
		require.NoError(t, err)
		tests[pkg] = append(tests[pkg], test)
	}
	of, _, _ := split(what)
	slow := []string{"worldengine/handoff", "worldengine/internal/serve/server", "worldengine/internal/testkit/systemtest"}
	rank := func(pkg string) int { // the quick ones first
		isSlow := func(prefix string) bool { return strings.HasPrefix(pkg, prefix) }
		return slices.Index([]bool{pkg == of, !slices.ContainsFunc(slow, isSlow), true}, true)
	}
	order := slices.SortedFunc(maps.Keys(tests), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	for _, pkg := range order {
		c := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=120s",
			"-tags=browser", // as those of the console have it
			"-run", "^("+strings.Join(tests[pkg], "|")+")$", "./"+pkg)
		c.Dir, c.Env = root, append(os.Environ(), "GOFLAGS=-pgo=off -overlay="+overlay)
		out, err := c.CombinedOutput()
		require.NotContains(t, string(out), "[build failed]", "%s: %s", what, out)
		if err != nil {
			t.Logf("%s: %s fails", what, pkg)
			return true
		}
	}
	return false
}

// mutate returns files that break a declaration or a schema, none if it has nothing to break.
func mutate(t *testing.T, root, name string) map[string]string {
	if strings.HasSuffix(name, ".schema.json") {
		var schema map[string]any
		require.NoError(t, json.Unmarshal([]byte(read(t, filepath.Join("..", name))), &schema))
		maps.DeleteFunc(schema, func(member string, _ any) bool {
			return !slices.Contains([]string{"$schema", "$id", "title", "description"}, member)
		})
		data, err := json.Marshal(schema)
		require.NoError(t, err)
		return map[string]string{filepath.Join(root, name): string(data)}
	}
	pkg, ident, err := split(name)
	if err != nil {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	require.NoError(t, err)
	mutants := map[string]string{}
	for _, path := range files {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
		require.NoError(t, err)
		text, broken := string(source), false
		at := func(p token.Pos) int { return set.Position(p).Offset }
		for _, decl := range slices.Backward(file.Decls) { // so that offsets stay
			from, to, with := 0, 0, ""
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				full := nameOf(decl)
				if decl.Body == nil || len(decl.Body.List) == 0 || full != ident && !strings.HasPrefix(full, ident+".") {
					continue
				}
				from = at(decl.Body.Lbrace) + 1
				to, with = from, "\nif true { return "+zeros(text, decl.Type.Results, at)+" }\n"
			case *ast.GenDecl:
				from, to, with = valueOf(decl, ident, text, at)
			}
			if with != "" {
				text, broken = text[:from]+with+text[to:], true
			}
		}
		if broken {
			mutants[path] = text
		}
	}
	return mutants
}

// zeros returns the zero values of results.
func zeros(source string, results *ast.FieldList, at func(token.Pos) int) string {
	if results == nil || len(results.List[0].Names) > 0 && results.List[0].Names[0].Name != "_" {
		return "" // a bare return
	}
	var values []string
	for _, field := range results.List {
		for range max(len(field.Names), 1) {
			values = append(values, "*new("+source[at(field.Type.Pos()):at(field.Type.End())]+")")
		}
	}
	return strings.Join(values, ", ")
}

// valueOf returns the place of the value of a constant or variable, and another value.
func valueOf(
	decl *ast.GenDecl, ident, source string, at func(token.Pos) int,
) (from, to int, with string) {
	for _, spec := range decl.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 || value.Names[0].Name != ident {
			continue
		}
		from, to = at(value.Values[0].Pos()), at(value.Values[0].End())
		literal, isLiteral := value.Values[0].(*ast.BasicLit)
		switch {
		case isLiteral && literal.Kind == token.STRING:
			return from, to, `"mutant"`
		case decl.Tok == token.CONST:
			return from, to, "7 * (" + source[from:to] + ")"
		}
	}
	return 0, 0, ""
}
