package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

const schemaBase = "https://worldengine.example/schemas/"

// documents are the JSON Schemas, read without any code of the product: as trees that say what
// there is to mutate, and compiled by another library as the judge of what may be accepted.
type documents struct {
	trees    map[string]map[string]any
	compiled map[schemas.Name]*jsonschema.Schema
}

func readDocuments(t testing.TB) *documents {
	t.Helper()
	d := &documents{trees: map[string]map[string]any{},
		compiled: map[schemas.Name]*jsonschema.Schema{}}
	c := jsonschema.NewCompiler()
	c.LoadURL = func(url string) (io.ReadCloser, error) {
		return nil, fmt.Errorf("not embedded: %s", url)
	}
	for _, name := range schemas.Names() {
		source, err := schemas.Source(name)
		require.NoError(t, err)
		var tree map[string]any
		require.NoError(t, json.Unmarshal(source, &tree))
		file := string(name) + ".schema.json"
		d.trees[file] = tree
		require.NoError(t, c.AddResource(schemaBase+file, bytes.NewReader(source)))
	}
	for _, name := range schemas.Names() {
		d.compiled[name] = c.MustCompile(schemaBase + string(name) + ".schema.json")
	}
	return d
}

// mayBe reports whether data can be a payload of the schema: if not, the server has to refuse it.
func (d *documents) mayBe(name schemas.Name, data []byte) (tree any, ok bool) {
	if json.Unmarshal(data, &tree) != nil {
		return nil, false
	}
	return tree, d.compiled[name].Validate(tree) == nil
}

// site is a place in a payload, with its rules in the schemas.
type site struct {
	at     *node
	parent *node // nil for the whole payload
	index  int
	rules  []map[string]any
}

// rule is a part of a schema, with the document at which its references start.
type rule struct {
	file string
	body map[string]any
}

// sites returns all places of a payload.
func (d *documents) sites(name schemas.Name, root *node) []site {
	file := string(name) + ".schema.json"
	var list []site
	var walk func(n, parent *node, index int, rules []rule)
	walk = func(n, parent *node, index int, rules []rule) {
		rules = d.expand(rules)
		s := site{at: n, parent: parent, index: index}
		for _, r := range rules {
			s.rules = append(s.rules, r.body)
		}
		list = append(list, s)
		for i, m := range n.members {
			walk(m.value, n, i, below(rules, n.array, m.name))
		}
	}
	walk(root, nil, 0, []rule{{file, d.trees[file]}})
	return list
}

// expand adds the rules that rules refer to, and those for some cases only.
func (d *documents) expand(rules []rule) []rule {
	for i := 0; i < len(rules); i++ { // it grows
		r := rules[i]
		if ref, ok := r.body["$ref"].(string); ok {
			rules = append(rules, d.lookUp(r.file, ref))
		}
		all, _ := r.body["allOf"].([]any)
		for _, part := range all {
			rules = append(rules, rule{r.file, part.(map[string]any)})
		}
		if then, ok := r.body["then"].(map[string]any); ok {
			rules = append(rules, rule{r.file, then})
		}
	}
	return rules
}

func (d *documents) lookUp(file, ref string) rule {
	target, path, _ := strings.Cut(ref, "#")
	if target == "" {
		target = file
	}
	body := d.trees[target]
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		if part != "" {
			body = body[part].(map[string]any)
		}
	}
	return rule{target, body}
}

// below returns what rules say of an item, or of a member with a name as it is written.
func below(rules []rule, array bool, name string) (list []rule) {
	for _, r := range rules {
		var sub any = r.body["items"]
		if !array {
			properties, _ := r.body["properties"].(map[string]any)
			sub = properties[strings.Trim(name, `"`)]
		}
		if body, ok := sub.(map[string]any); ok {
			list = append(list, rule{r.file, body})
		}
	}
	return list
}
