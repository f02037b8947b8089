// Command gen writes the files derived from Go: the schemas of requests and replies, lists in other
// schemas, the tables of the clients in JavaScript and Java, and tables of the docs. It runs under go generate, and
// its test fails if a file is not as gen would write it. It panics if it cannot go on.
package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

//go:generate go run . ../../..

func main() {
	root := os.Args[1]
	for name, text := range generate(root) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			panic(err)
		}
	}
}

// generate returns the generated files of the tree at root by name.
func generate(root string) map[string]string {
	g := generator{root: root, files: map[string]string{}}
	g.messages()
	g.schemas()
	g.tables()
	g.files[pythonTypesFile] = g.pythonTypes()
	g.asyncAPI()
	return g.files
}

// generator collects files.
type generator struct {
	root  string
	files map[string]string
}

// read returns the text of a file of the tree, as it was generated so far.
func (g *generator) read(name string) string {
	text, begun := g.files[name]
	if !begun {
		text = string(must(os.ReadFile(filepath.Join(g.root, name))))
	}
	return text
}

// decode decodes a JSON file of the tree into v.
func (g *generator) decode(name string, v any) {
	if err := json.Unmarshal([]byte(g.read(name)), v, json.MatchCaseInsensitiveNames(true)); err != nil {
		panic(name + ": " + err.Error())
	}
}

// table replaces the text between the marks of a page.
func (g *generator) table(page, name, text string) {
	begin := "<!-- generated: " + name + " -->\n"
	before, rest, found := strings.Cut(g.read(page), begin)
	_, after, ended := strings.Cut(rest, "<!-- end -->")
	if !found || !ended {
		panic(page + " has no marks around the table " + name)
	}
	g.files[page] = before + begin + "\n" + text + "\n<!-- end -->" + after
}

// value replaces the value at a JSON Pointer of a schema, and keeps the rest as it is.
func (g *generator) value(schema, pointer, value string) {
	name := file(schema)
	old := g.read(name)
	in := jsontext.NewDecoder(strings.NewReader(old))
	for string(in.StackPointer()) != pointer {
		must(in.ReadToken())
	}
	was := must(in.ReadValue()) // the member's name was read
	end := int(in.InputOffset())
	g.files[name] = old[:end-len(bytes.TrimSpace(was))] + value + old[end:]
}

// file returns the file of a schema.
func file[Name ~string](schema Name) string { return "schemas/" + string(schema) + ".schema.json" }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
