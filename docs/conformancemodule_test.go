package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)([A-Z]\w*)?$`)

// module resolves names of the Go module at root. It parses each package once.
type module struct {
	root     string
	packages map[string]*declarations
}

// declarations are the names of a package: of its code, with methods, fields and the values of
// constants as Type.Name, and of its tests, fuzz tests and benchmarks.
type declarations struct {
	code, tests map[string]bool
}

func openModule(root string) *module {
	return &module{root: root, packages: map[string]*declarations{}}
}

// split cuts a name into the path of its package and the rest: "a/b.T.M" into "a/b" and "T.M".
func split(name string) (dir, rest string, err error) {
	slash := strings.LastIndexByte(name, '/')
	last, rest, found := strings.Cut(name[slash+1:], ".")
	if !found || last == "" || rest == "" {
		return "", "", fmt.Errorf("%q is not a package and a name", name)
	}
	return name[:slash+1] + last, rest, nil
}

func (m *module) declarations(dir string) (*declarations, error) {
	if d := m.packages[dir]; d != nil {
		return d, nil
	}
	if !fs.ValidPath(dir) {
		return nil, fmt.Errorf("%q is no path within the module", dir)
	}
	files, err := filepath.Glob(filepath.Join(m.root, filepath.FromSlash(dir), "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("there is no package %q", dir)
	}
	d := &declarations{code: map[string]bool{}, tests: map[string]bool{}}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("package %q cannot be read: %w", dir, err)
		}
		for _, decl := range file.Decls {
			if !strings.HasSuffix(name, "_test.go") {
				d.addCode(decl)
			} else if f, ok := decl.(*ast.FuncDecl); ok && testName.MatchString(nameOf(f)) {
				d.tests[f.Name.Name] = true
			}
		}
	}
	delete(d.tests, "TestMain")
	m.packages[dir] = d
	return d, nil
}

func (d *declarations) addCode(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		d.code[nameOf(decl)] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					d.code[name.Name] = true
				}
			case *ast.TypeSpec:
				d.code[spec.Name.Name] = true
				d.addMembers(spec)
			}
		}
	}
}

// nameOf returns the name of a function, or Type.Name of a method.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && of == "" {
			of = name.Name // the first, before type parameters
		}
		return true
	})
	return of + "." + f.Name.Name
}

func (d *declarations) addMembers(spec *ast.TypeSpec) {
	var members []*ast.Field
	switch t := spec.Type.(type) {
	case *ast.StructType:
		members = t.Fields.List
	case *ast.InterfaceType:
		members = t.Methods.List
	}
	for _, member := range members {
		for _, name := range member.Names {
			d.code[spec.Name.Name+"."+name.Name] = true
		}
	}
}

// checkTest returns an error unless name is a test, fuzz test or benchmark of the module.
func (m *module) checkTest(name string) error {
	dir, test, err := split(name)
	if err != nil {
		return err
	}
	d, err := m.declarations(dir)
	if err == nil && !d.tests[test] {
		err = fmt.Errorf("package %q has no test %s", dir, test)
	}
	return err
}

// checkCode returns an error unless name is a declaration, or a JSON file, of the module.
func (m *module) checkCode(name string) error {
	if strings.HasSuffix(name, ".json") {
		if _, err := os.Stat(filepath.Join(m.root, filepath.FromSlash(name))); err != nil ||
			!fs.ValidPath(name) {
			return fmt.Errorf("there is no file %q", name)
		}
		return nil
	}
	dir, ident, err := split(name)
	if err != nil {
		return err
	}
	d, err := m.declarations(dir)
	if err == nil && !d.code[ident] {
		err = fmt.Errorf("package %q declares no %s", dir, ident)
	}
	return err
}
