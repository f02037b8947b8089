package docs_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
)

// code is the module's code, as comments may speak of it.
type code struct {
	files    map[string]*ast.File
	packages map[string]*codePackage // by directory, and by import path
	byName   map[string][]*codePackage
	byType   map[string][]*codeType
	words    map[string]bool // of identifiers and strings
	texts    map[string]bool // words of strings
}

// codePackage is a package with its tests.
type codePackage struct {
	declared map[string]bool // names, fields and methods
	names    map[string]bool // names of the package alone
	types    map[string]*codeType
	fields   map[string][]ast.Expr // types of fields by name
	imports  map[string]string     // paths by name
}

// codeType is a type. It has the members of its bases, too: embedded types, or the type that it is made of.
type codeType struct {
	in      *codePackage
	members map[string]bool
	bases   []ast.Expr
}

var stringWord = regexp.MustCompile(`\w+`)

func readCode(t *testing.T) *code {
	t.Helper()
	goFiles(t) // fails if a file cannot be read
	return collectNames()
}

// collectNames collects the names of the module's code once.
var collectNames = sync.OnceValue(func() *code {
	files, _ := parseTree()
	c := &code{files: files, packages: map[string]*codePackage{}, byName: map[string][]*codePackage{},
		byType: map[string][]*codeType{}, words: map[string]bool{}, texts: map[string]bool{}}
	for name, file := range c.files {
		dir := path.Dir(name)
		in := c.packages[dir]
		if in == nil {
			in = &codePackage{declared: map[string]bool{}, names: map[string]bool{}, types: map[string]*codeType{},
				fields: map[string][]ast.Expr{}, imports: map[string]string{}}
			c.packages[dir], c.packages[modulePath+"/"+dir] = in, in
			name := strings.TrimSuffix(file.Name.Name, "_test")
			c.byName[name] = append(c.byName[name], in)
		}
		c.add(in, file)
	}
	for _, in := range c.byName {
		for _, in := range in {
			for name, typ := range in.types {
				c.byType[name] = append(c.byType[name], typ)
			}
		}
	}
	return c
})

func (c *code) eachComment(f func(file string, in *codePackage, text string)) {
	for name, file := range c.files {
		if strings.HasPrefix(name, "docs/") { // whose examples of names need not exist
			continue
		}
		for _, group := range file.Comments {
			f(name, c.packages[path.Dir(name)], codeBlock.ReplaceAllString(group.Text(), ""))
		}
	}
}

func (c *code) add(in *codePackage, file *ast.File) {
	for _, spec := range file.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		in.imports[name] = imported
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
			owner, method, _ := strings.Cut(nameOf(f), ".")
			in.typ(owner).members[method] = true
			in.declared[method] = true
		}
	}
	for name := range packageNames(file) {
		in.names[name], in.declared[name] = true, true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommentGroup:
			return false
		case *ast.Ident:
			c.words[n.Name] = true
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				for _, word := range stringWord.FindAllString(n.Value, -1) {
					c.words[word], c.texts[word] = true, true
				}
				c.words[strings.Trim(n.Value, `"`)] = true
			}
		case *ast.TypeSpec:
			in.addType(n)
		}
		return true
	})
}

// packageNames returns the names that a file declares for its package.
func packageNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}

func (p *codePackage) typ(name string) *codeType {
	if p.types[name] == nil {
		p.types[name] = &codeType{in: p, members: map[string]bool{}}
	}
	return p.types[name]
}

func (p *codePackage) addType(spec *ast.TypeSpec) {
	typ := p.typ(spec.Name.Name)
	var members *ast.FieldList
	switch t := spec.Type.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		typ.bases = append(typ.bases, spec.Type)
		return
	}
	for _, member := range members.List {
		for _, name := range member.Names {
			typ.members[name.Name], p.declared[name.Name] = true, true
			p.fields[name.Name] = append(p.fields[name.Name], member.Type)
		}
		if len(member.Names) == 0 {
			typ.bases = append(typ.bases, member.Type)
			typ.members[typeName(member.Type)] = true
		}
	}
}

// typeName returns the name of a type without its package, its pointer and its parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return ""
}

// resolve reports whether a qualified name in a comment begins with a type or a package of the module, and whether
// its second part is a member of that.
func (c *code) resolve(in *codePackage, name string) (known, ok bool) {
	parts := strings.Split(name, ".")
	first, second := parts[0], parts[1]
	if c.words[name] || slices.Contains(foreignNames, name) { // a verb, a file
		return false, true
	}
	if typ := in.types[first]; typ != nil && c.mayHave(typ, second, 0) {
		return true, true
	}
	packages := c.byName[first]
	if imported, isImported := in.imports[first]; isImported {
		packages = nil
		if p := c.packages[imported]; p != nil {
			packages = []*codePackage{p}
		}
	}
	switch {
	case unicode.IsUpper(rune(first[0])):
		return c.resolveType(in, first, second)
	case len(packages) == 0 || !unicode.IsUpper(rune(second[0])):
		return false, true
	}
	for _, p := range packages {
		typ := p.types[second]
		if p.names[second] && (len(parts) == 2 || typ == nil || c.mayHave(typ, parts[2], 0)) {
			return true, true
		}
	}
	return true, in.declared[first] // a field of that name
}

// resolveType resolves a member of a field of the package, or of a type of another one.
func (c *code) resolveType(in *codePackage, first, second string) (known, ok bool) {
	known = in.types[first] != nil
	for _, field := range in.fields[first] {
		typ := c.typeOf(in, field)
		known, ok = true, ok || typ == nil || c.mayHave(typ, second, 0)
	}
	if known {
		return known, ok
	}
	for _, typ := range c.byType[first] {
		known, ok = true, ok || c.mayHave(typ, second, 0)
	}
	return known, ok
}

// mayHave reports whether a type has a member, or has a base outside the module.
func (c *code) mayHave(t *codeType, member string, depth int) bool {
	if t.members[member] || depth > 5 {
		return true
	}
	for _, base := range t.bases {
		typ := c.typeOf(t.in, base)
		_, isPlain := base.(*ast.Ident) // as string, if it is not of the module
		if typ == nil && !isPlain || typ != nil && c.mayHave(typ, member, depth+1) {
			return true
		}
	}
	return false
}

// typeOf returns the type that an expression names; nil if it is not of the module.
func (c *code) typeOf(in *codePackage, e ast.Expr) *codeType {
	switch e := e.(type) {
	case *ast.Ident:
		return in.types[e.Name]
	case *ast.SelectorExpr:
		if name, ok := e.X.(*ast.Ident); ok {
			if p := c.packages[in.imports[name.Name]]; p != nil {
				return p.types[e.Sel.Name]
			}
		}
	case *ast.StarExpr:
		return c.typeOf(in, e.X)
	case *ast.IndexExpr:
		return c.typeOf(in, e.X)
	}
	return nil
}
