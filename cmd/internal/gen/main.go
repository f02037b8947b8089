// Command gen writes the files derived from tables in Go: lists in JSON Schemas,
// worldengine/client/js/contract.gen.mjs, and tables of the docs. It runs under go generate, and
// its test fails if a file is not as gen would write it.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

//go:generate go run . ../../..

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the generated files of the tree at root by name.
func generate(root string) (map[string]string, error) {
	g := generator{root: root, files: map[string]string{}}
	g.messages()
	g.schemas()
	g.files["worldengine/client/js/contract.gen.mjs"] = contract()
	g.files["worldengine/console/web/src/advice.gen.js"] = advice()
	g.files["examples/plugin-minecraft/types.gen.mjs"] = commandTypes()
	g.docs()
	return g.files, g.err
}

// generator collects files. After an error it does nothing more.
type generator struct {
	root  string
	files map[string]string
	err   error
}

// edit changes the text of a file of the tree, as earlier edits left it.
func (g *generator) edit(name string, change func(text string) (string, error)) {
	if g.err != nil {
		return
	}
	text, begun := g.files[name]
	if !begun {
		data, err := os.ReadFile(filepath.Join(g.root, name))
		if g.err = err; err != nil {
			return
		}
		text = string(data)
	}
	text, err := change(text)
	if err != nil {
		g.err = fmt.Errorf("%s: %w", name, err)
	}
	g.files[name] = text
}

// table replaces the text between the marks of a page.
func (g *generator) table(page, name, text string) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	g.edit(page, func(old string) (string, error) {
		before, rest, found := strings.Cut(old, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return old, fmt.Errorf("has no marks %s … %s", strings.TrimSpace(begin), end)
		}
		return before + begin + "\n" + text + "\n" + end + after, nil
	})
}

// value replaces the value at a JSON Pointer of a schema, and keeps the rest as it is.
func (g *generator) value(schema, pointer, value string) {
	g.edit("schemas/"+schema+".schema.json", func(old string) (string, error) {
		in := jsontext.NewDecoder(strings.NewReader(old))
		for {
			if _, err := in.ReadToken(); err != nil {
				return old, fmt.Errorf("has no %s: %w", pointer, err)
			}
			if string(in.StackPointer()) != pointer {
				continue
			}
			was, err := in.ReadValue() // the member's name was read
			if err != nil {
				return old, err
			}
			end := int(in.InputOffset())
			return old[:end-len(bytes.TrimSpace(was))] + value + old[end:], nil
		}
	})
}
