package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
)

// messages writes the schemas of requests and replies from the types of package messages that have
// a directive:
//
//	// TownGet asks for the state of a town.
//	//
//	//schema:town-get-request.v1
//	//schema:example {"townId": "town-threatened"}
//
// The comments of a type and of its fields are the descriptions. Examples that are too long for a line
// are in the file, which keeps them. A field is required unless its JSON
// leaves a zero value out; its tag `schema` has what its type does not tell (see rule).
func (g *generator) messages() {
	in := g.declarations("worldengine/messages")
	for _, name := range in.names {
		spec := in.types[name]
		var title string
		var examples []string
		for _, line := range spec.Doc.List {
			example, is := strings.CutPrefix(line.Text, "//schema:example ")
			if is {
				examples = append(examples, example)
			} else if directive, is := strings.CutPrefix(line.Text, "//schema:"); is {
				title = directive
			}
		}
		if title != "" {
			g.schema(title, in, spec, examples)
		}
	}
}

// schema writes the schema of a message.
func (g *generator) schema(title string, in *declarations, spec *ast.TypeSpec, examples []string) {
	about := strings.TrimPrefix(sentence(spec.Doc), spec.Name.Name+" ")
	about = strings.ToUpper(about[:1]) + about[1:]
	members := node{
		`"$schema": "https://json-schema.org/draft/2020-12/schema"`,
		fmt.Sprintf(`"$id": "https://worldengine.example/schemas/%s.schema.json"`, title),
		fmt.Sprintf(`"title": %q`, title),
	}
	shape := g.shape(in, spec.Type, "")
	if strings.HasSuffix(title, "-request.v1") {
		about += " It has exactly these members."
		shape = append(shape, `"additionalProperties": false`)
	} else {
		about += " Members that are not named here are tolerated."
	}
	members = append(append(members, description(about)), shape...)
	file := "schemas/" + title + ".schema.json"
	kept := "[" + strings.Join(examples, ", ") + "]"
	if examples == nil {
		kept = g.examples(file)
	}
	text := jsontext.Value(append(members, `"examples": `+kept).String())
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil && g.err == nil {
		g.err = fmt.Errorf("schema %s: %w", title, err)
	}
	g.files[file] = string(text) + "\n"
}

// examples returns the examples that a file has.
func (g *generator) examples(file string) string {
	var old struct {
		Examples jsontext.Value `json:"examples"`
	}
	data, err := os.ReadFile(filepath.Join(g.root, file))
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err != nil && g.err == nil {
		g.err = err
	}
	return string(old.Examples)
}

// declarations are the types of a package.
type declarations struct {
	names   []string // in their order
	types   map[string]*ast.TypeSpec
	imports map[string]string // paths in the module by name
}

// declarations parses a package of the module.
func (g *generator) declarations(path string) *declarations {
	in := &declarations{types: map[string]*ast.TypeSpec{}, imports: map[string]string{}}
	files, _ := filepath.Glob(filepath.Join(g.root, path, "*.go"))
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			g.err = err
			return in
		}
		for _, spec := range file.Imports {
			if path, own := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "worldengine/"); own {
				in.imports[filepath.Base(path)] = path
			}
		}
		for _, decl := range file.Decls {
			if group, is := decl.(*ast.GenDecl); is && group.Tok == token.TYPE {
				spec := group.Specs[0].(*ast.TypeSpec)
				spec.Doc = group.Doc
				in.names = append(in.names, spec.Name.Name)
				in.types[spec.Name.Name] = spec
			}
		}
	}
	return in
}

// node is a schema, by its members.
type node []string

func (n node) String() string { return "{" + strings.Join(n, ", ") + "}" }

// shape returns the schema of a type with the tag of its field.
func (g *generator) shape(in *declarations, of ast.Expr, tag string) node {
	switch of := of.(type) {
	case *ast.StarExpr:
		return g.shape(in, of.X, tag)
	case *ast.ArrayType:
		each, most, bounded := strings.Cut(tag, "most=")
		list := node{`"type": "array"`, `"items": ` + g.shape(in, of.Elt, each).String()}
		if bounded {
			list = append(list, `"maxItems": `+most)
		}
		return list
	case *ast.MapType:
		return node{`"type": "object"`}
	case *ast.StructType:
		required, properties := g.members(in, of)
		shape := node{`"type": "object"`}
		if required != nil {
			shape = append(shape, `"required": `+list(required, ""))
		}
		return append(shape, `"properties": `+properties.String())
	case *ast.SelectorExpr:
		pkg := of.X.(*ast.Ident).Name
		if _, known := types[pkg+"."+of.Sel.Name]; known || strings.HasPrefix(tag, "ref=") {
			return rule(types[pkg+"."+of.Sel.Name], tag)
		}
		return g.shape(g.declarations(in.imports[pkg]), of.Sel, tag)
	}
	name := of.(*ast.Ident).Name
	if _, known := types[name]; known || strings.HasPrefix(tag, "ref=") {
		return rule(types[name], tag)
	}
	return g.shape(in, in.types[name].Type, tag)
}

// members returns the required members of a struct, and the properties of all.
func (g *generator) members(in *declarations, of *ast.StructType) (required []string, properties node) {
	for _, field := range of.Fields.List {
		tag := reflect.StructTag("")
		if field.Tag != nil {
			tag = reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		}
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		if name == "" { // it is embedded
			inner := in.types[field.Type.(*ast.Ident).Name].Type.(*ast.StructType)
			its, more := g.members(in, inner)
			required, properties = append(required, its...), append(properties, more...)
			continue
		}
		if options == "" {
			required = append(required, name)
		}
		comment := field.Doc
		if comment == nil {
			comment = field.Comment
		}
		shape := append(node{description(sentence(comment))}, g.shape(in, field.Type, tag.Get("schema"))...)
		properties = append(properties, strconv.Quote(name)+": "+shape.String())
	}
	return required, properties
}

// types are the schemas of the types that others are made of.
var types = map[string]string{
	"string": `"type": "string"`, "time.Time": `"type": "string"`, "bool": `"type": "boolean"`,
	"float64": `"type": "number"`,
	"int":     `"type": "integer"`, "int64": `"type": "integer"`, "uint64": `"type": "integer"`,
	"any": "", "jsontext.Value": "",
}

// rules are the parts of a schema that a tag may name.
var rules = map[string]string{
	"id":         `"minLength": 1`,
	"hash":       `"pattern": "^[0-9a-f]{64}$"`,
	"handoffId":  `"pattern": "^handoff_[0-9a-f]{64}$"`,
	"proposalId": `"pattern": "^proposal_[0-9a-f]{64}$"`,
	"runId":      `"pattern": "^[A-Za-z0-9_-]{1,128}$"`,
	"time": `"format": "date-time", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])` +
		`[Tt](([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]|23:59:60)(\\.[0-9]+)?([Zz]|[+-]00:00)$"`,
	"object": `"type": "object"`,
}

// rule returns the schema of a value of a type. Its tag has one of rules, or one=A|B; ref=SCHEMA;
// chars=N-M; min=N and max=N of a number, which is 0 to 2^53-1 without. most=N items is of a list,
// and the last.
func rule(shape, tag string) node {
	n := node{shape}
	if shape == "" {
		n = nil
	}
	least, most := "0", "9007199254740991"
	for part := range strings.SplitSeq(strings.TrimSuffix(tag, ","), ",") {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "":
		case "min":
			least = value
		case "max":
			most = value
		case "chars":
			n = append(n, `"pattern": "^[\\s\\S]{`+strings.Replace(value, "-", ",", 1)+`}$"`)
		case "one":
			n = node{`"enum": ` + list(strings.Split(value, "|"), "")}
		case "proposalTypes":
			n = node{`"enum": ` + list(handoff.ProposalTypes(), "")}
		case "ref":
			n = node{`"$ref": "` + value + `.schema.json"`}
		default:
			n = append(n, rules[key])
		}
	}
	if shape == `"type": "integer"` {
		n = append(n, `"minimum": `+least, `"maximum": `+most)
	}
	return n
}

// sentence returns a comment as one line, without its directives.
func sentence(comment *ast.CommentGroup) string {
	return strings.Join(strings.Fields(comment.Text()), " ")
}

func description(text string) string {
	quoted, _ := jsontext.AppendQuote(nil, text)
	return `"description": ` + string(quoted)
}
