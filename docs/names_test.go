package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vagueVerbs say nothing: each stood for a dozen ideas. Instead of them: receive, reserve, acquire, admit, lock; keep,
// postpone, wait; publish, report, announce; allow, forward, match; start, open.
var vagueVerbs = strings.Fields(`take takes took taken taking hold holds held holding tell tells told telling
	pass passes passed passing begin begins began begun beginning`)

// vagueNames are no names of types, fields, and constants and variables of packages: each stood for several ideas.
// Instead of them: a noun with the idea, such as pendingRequests, missing, dropped, peers, capacity.
var vagueNames = strings.Fields(`absent asked ends gets given kept left look looked may of others own
	rest taken told waits`)

// bounds are first words, and limits last words, of such names; Go's own library has the others.
var (
	bounds = map[string]string{"most": "max", "least": "min"}
	limits = map[string]string{"every": "Interval", "within": "Timeout"}
)

// prepositions begin no name, since a function is a verb or the noun that it returns (CONTRIBUTING.md).
var prepositions = strings.Fields(`about after against among as at before between by during for from in into of on over
	per since to under until upon via within without`)

// idioms are the prepositions that Go itself begins names with. With is allowed for all options (WithUsers) and changed
// copies (context.WithValue, slog's WithGroup, withDefaults), so it is no preposition here.
var idioms = map[string]func(name string, f *ast.FuncType) bool{
	// A handler of an event: it has a suffix, and returns nothing or an error, as http.Server's callbacks.
	"on": func(name string, f *ast.FuncType) bool { return len(name) > len("on") && !returnsValue(f) },
	// The element at a position, as of image.Image and types.Tuple.
	"at": func(name string, _ *ast.FuncType) bool { return name == "At" },
}

func TestNames_VerbsAndNouns(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, name := range tree(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		checked++
		assert.Empty(t, badNames(t, "../"+name), "%s: begin with the verb or the noun (CONTRIBUTING.md)", name)
	}
	require.Greater(t, checked, 500)
}

func TestNames_TypesAndValues(t *testing.T) {
	t.Parallel()
	for _, name := range tree(t) {
		if path.Ext(name) == ".go" {
			for _, declared := range valueNames(t, "../"+name) {
				assert.NotContains(t, vagueNames, strings.ToLower(declared), "%s: say which one", name)
				assert.Empty(t, bounds[firstWord(declared)], "%s: the first word of %s", name, declared)
				if last := lastWord(declared); last != strings.ToLower(declared) {
					assert.Empty(t, limits[last], "%s: the last word of %s", name, declared)
				}
			}
		}
	}
}

// valueNames returns the names of the types and fields of a file, and of its package's constants and variables.
func valueNames(t *testing.T, file string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	add := func(idents ...*ast.Ident) {
		for _, ident := range idents {
			names = append(names, ident.Name)
		}
	}
	for _, declaration := range parsed.Decls {
		if values, ok := declaration.(*ast.GenDecl); ok {
			for _, spec := range values.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok {
					add(value.Names...)
				}
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.StructType:
			for _, field := range n.Fields.List {
				add(field.Names...)
			}
		}
		return true
	})
	return names
}

// badNames returns the names of functions and methods of a file that begin with a vague verb or a preposition.
func badNames(t *testing.T, file string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	check := func(name string, f *ast.FuncType) {
		word := firstWord(name)
		idiom := idioms[word]
		if slices.Contains(vagueVerbs, word) ||
			slices.Contains(prepositions, word) && (idiom == nil || !idiom(name, f)) {
			names = append(names, name)
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Name.Name, n.Type)
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				if f, ok := method.Type.(*ast.FuncType); ok {
					check(method.Names[0].Name, f)
				}
			}
		}
		return true
	})
	return names
}

// firstWord returns the first word of a name, in lower case: "take" of takeText and "of" of OfRetry.
func firstWord(name string) string {
	end := strings.IndexFunc(name[1:], unicode.IsUpper)
	if end < 0 {
		return strings.ToLower(name)
	}
	return strings.ToLower(name[:1+end])
}

// lastWord returns the last word of a name, in lower case: "every" of pollEvery.
func lastWord(name string) string {
	return strings.ToLower(name[max(0, strings.LastIndexFunc(name, unicode.IsUpper)):])
}

// returnsValue reports whether a function returns more than an error.
func returnsValue(f *ast.FuncType) bool {
	if f.Results == nil || len(f.Results.List) == 0 {
		return false
	}
	only, isName := f.Results.List[0].Type.(*ast.Ident)
	return len(f.Results.List) > 1 || !isName || only.Name != "error"
}
