package docs_test

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// foreignNames are of contracts, of other languages and of other modules, and stand in comments alone.
var foreignNames = strings.Fields(`CustomDialer EventIdRegistry ExecutionSemantics HighwayHash KillPoint MergePatch
	Node.js RunEvents.v2 RunSnapshot localeCompare stepIdNormalized`)

var (
	// A word with a capital after a small letter is a name, and may be in the plural.
	camelCase = regexp.MustCompile(`(?:\b[a-z]\w*\.)?\b[A-Za-z]\w*[a-z0-9][A-Z]\w*\b`)
	// A text such as Type.Member, package.Name or package.Type.Member, which is no part of a path.
	qualified = regexp.MustCompile(`(?:^|[^\w./"-])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)`)
	pointer   = regexp.MustCompile(`(?:^|[\s(])\*([A-Z]\w*)(?:$|[^\w.*])`)
	codeBlock = regexp.MustCompile(`(?m)^\t.*$`)
	// The first word of a sentence that does not start with a capital.
	smallWord = regexp.MustCompile(`(?:^|\.\s|\n\n)([a-z]\w*)\s`)
)

// Each name in a comment is declared, used or written in the code.
func TestComments_Names(t *testing.T) {
	t.Parallel()
	code := readCode(t)
	checked := 0
	code.eachComment(func(file string, in *codePackage, text string) {
		for _, name := range camelCase.FindAllString(text, -1) {
			before, word, isQualified := strings.Cut(name, ".")
			if !isQualified {
				word = name
			} else if code.packages[in.imports[before]] == nil { // another module's
				continue
			}
			checked++
			assert.True(t, code.words[word] || code.words[strings.TrimSuffix(word, "s")] ||
				slices.Contains(foreignNames, word), "%s: a comment names %s, which the code does not have", file, name)
		}
	})
	require.Greater(t, checked, 3000)
}

// Each member of a type, and each name of a package, that a comment names is declared.
func TestComments_QualifiedNames(t *testing.T) {
	t.Parallel()
	code := readCode(t)
	checked := 0
	code.eachComment(func(file string, in *codePackage, text string) {
		for _, found := range qualified.FindAllStringSubmatch(text, -1) {
			if known, ok := code.resolve(in, found[1]); known {
				checked++
				assert.True(t, ok, "%s: a comment names %s, which is not declared", file, found[1])
			}
		}
	})
	require.Greater(t, checked, 150)
}

// Each pointer type that a comment names without a package is a type of the comment's package.
func TestComments_Pointers(t *testing.T) {
	t.Parallel()
	code := readCode(t)
	checked := 0
	code.eachComment(func(file string, in *codePackage, text string) {
		for _, found := range pointer.FindAllStringSubmatch(text, -1) {
			checked++
			assert.NotNil(t, in.types[found[1]], "%s: a comment names *%s, which the package does not declare", file, found[1])
		}
	})
	require.Greater(t, checked, 20)
}

// A sentence of a declaration's comment that starts with a small letter starts with the name of a parameter, or of
// another declaration of the package.
func TestComments_Parameters(t *testing.T) {
	t.Parallel()
	code := readCode(t)
	checked := 0
	for file, parsed := range code.files {
		in := code.packages[path.Dir(file)]
		ast.Inspect(parsed, func(n ast.Node) bool {
			doc, near := documented(n)
			for _, found := range smallWord.FindAllStringSubmatch(doc.Text(), -1) {
				word := found[1]
				checked++
				assert.True(t, near[word] || len(word) > 1 && (in.declared[word] || code.byName[word] != nil || code.texts[word]),
					"%s: a sentence starts with %s, which is no name: %s", file, word, doc.Text())
			}
			return true
		})
	}
	require.Greater(t, checked, 3000)
}

// documented returns the comment of a declaration, and the names in the declaration without a function's body. A
// test's comment, and one that describes a member of a message, may be any text.
func documented(n ast.Node) (doc *ast.CommentGroup, near map[string]bool) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if !strings.HasPrefix(n.Name.Name, "Test") {
			return n.Doc, identifiers(&ast.FuncDecl{Recv: n.Recv, Name: n.Name, Type: n.Type})
		}
	case *ast.GenDecl:
		return n.Doc, identifiers(n)
	case *ast.TypeSpec:
		return n.Doc, identifiers(n)
	case *ast.ValueSpec:
		return n.Doc, identifiers(n)
	case *ast.Field:
		if n.Tag == nil || !strings.Contains(n.Tag.Value, "json:") {
			return n.Doc, identifiers(n)
		}
	}
	return nil, nil
}

func identifiers(n ast.Node) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if ident, ok := n.(*ast.Ident); ok {
			names[ident.Name] = true
		}
		return true
	})
	return names
}
