package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"sync"
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
	limits = map[string]string{"every": "Interval", "within": "Timeout", "anyway": "Interval", "soon": "Delay",
		"once": "max", "again": "a noun"}
)

// durationWords are the last words of constants of type time.Duration: an interval comes between two acts of a kind, a
// timeout bounds a wait, a delay comes before one act. What happens within a window belongs together. A TTL and a
// retention are how long something is kept, and an age is how old something is at least or at most.
var durationWords = strings.Fields(`interval timeout delay window age retention ttl`)

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

// parseTree parses the Go files of the module, and returns them by path.
var parseTree = sync.OnceValues(func() (map[string]*ast.File, error) {
	files := map[string]*ast.File{}
	paths, err := walk()
	for _, name := range paths {
		if path.Ext(name) == ".go" && err == nil {
			files[name], err = parser.ParseFile(token.NewFileSet(), "../"+name, nil,
				parser.SkipObjectResolution|parser.ParseComments)
		}
	}
	return files, err
})

func goFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	files, err := parseTree()
	require.NoError(t, err)
	require.Greater(t, len(files), 500)
	return files
}

func TestNames_VerbsAndNouns(t *testing.T) {
	t.Parallel()
	for name, file := range goFiles(t) {
		assert.Empty(t, badNames(file), "%s: begin with the verb or the noun (CONTRIBUTING.md)", name)
	}
}

func TestNames_TypesAndValues(t *testing.T) {
	t.Parallel()
	for name, file := range goFiles(t) {
		for _, declared := range valueNames(file) {
			assert.NotContains(t, vagueNames, strings.ToLower(declared), "%s: say which one", name)
			assert.Empty(t, bounds[firstWord(declared)], "%s: the first word of %s", name, declared)
			if last := lastWord(declared); last != strings.ToLower(declared) {
				assert.Empty(t, limits[last], "%s: the last word of %s", name, declared)
			}
		}
	}
}

func TestNames_Durations(t *testing.T) {
	t.Parallel()
	checked := 0
	for name, file := range goFiles(t) {
		for _, declared := range durations(file) {
			checked++
			assert.Contains(t, durationWords, lastWord(declared), "%s: the last word of %s", name, declared)
		}
	}
	require.Greater(t, checked, 150)
}

// durations returns the constants of a file that are durations: by their type, or by a value of units of time or of
// another duration.
func durations(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		constants, ok := n.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST {
			return true
		}
		for _, spec := range constants.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				if isDuration(value.Type) || i < len(value.Values) && isDuration(value.Values[i]) {
					names = append(names, name.Name)
				}
			}
		}
		return true
	})
	return names
}

// isDuration reports whether an expression is time.Duration, or of that type.
func isDuration(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return isDuration(e.X) || isDuration(e.Y)
	case *ast.Ident:
		return slices.Contains(durationWords, lastWord(e.Name))
	case *ast.SelectorExpr:
		name, ok := e.X.(*ast.Ident)
		return ok && name.Name == "time" || isDuration(e.Sel)
	}
	return false
}

// valueNames returns the names of the types and fields of a file, and of its package's constants and variables.
func valueNames(file *ast.File) (names []string) {
	add := func(idents ...*ast.Ident) {
		for _, ident := range idents {
			names = append(names, ident.Name)
		}
	}
	for _, declaration := range file.Decls {
		if values, ok := declaration.(*ast.GenDecl); ok {
			for _, spec := range values.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok {
					add(value.Names...)
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
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
func badNames(file *ast.File) (names []string) {
	check := func(name string, f *ast.FuncType) {
		word := firstWord(name)
		idiom := idioms[word]
		if slices.Contains(vagueVerbs, word) ||
			slices.Contains(prepositions, word) && (idiom == nil || !idiom(name, f)) {
			names = append(names, name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
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

// lastWord returns the last word of a name, in lower case: "every" of pollEvery, and "ttl" of simTTL.
func lastWord(name string) string {
	start := strings.LastIndexFunc(name, unicode.IsUpper)
	if start == len(name)-1 { // an abbreviation
		start = 1 + strings.LastIndexFunc(name, unicode.IsLower)
	}
	return strings.ToLower(name[max(0, start):])
}

// returnsValue reports whether a function returns more than an error.
func returnsValue(f *ast.FuncType) bool {
	if f.Results == nil || len(f.Results.List) == 0 {
		return false
	}
	only, isName := f.Results.List[0].Type.(*ast.Ident)
	return len(f.Results.List) > 1 || !isName || only.Name != "error"
}
