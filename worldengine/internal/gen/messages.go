package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
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
// are in the schema, which keeps them. A field is required unless its JSON leaves a zero value out; its
// tag `schema` has the rest (see rule).
func (g *generator) messages() {
	in := declarations{}
	for _, name := range must(filepath.Glob(filepath.Join(g.root, "worldengine/messages/*.go"))) {
		file := must(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))
		for _, decl := range file.Decls {
			if group, is := decl.(*ast.GenDecl); is && group.Tok == token.TYPE {
				spec := group.Specs[0].(*ast.TypeSpec)
				spec.Doc = group.Doc
				in[spec.Name.Name] = spec
			}
		}
	}
	for name, spec := range in {
		if spec.Doc == nil {
			panic("the type " + name + " of package messages has no comment")
		}
		var title string
		var examples []string
		for _, line := range spec.Doc.List {
			directive, _ := strings.CutPrefix(line.Text, "//schema:")
			if example, is := strings.CutPrefix(directive, "example "); is {
				examples = append(examples, example)
			} else if directive != line.Text {
				title = directive
			}
		}
		if title != "" {
			g.files[file(title)] = g.schema(title, in, spec, examples)
		}
	}
}

// schema returns the schema of a message.
func (g *generator) schema(
	title string, in declarations, spec *ast.TypeSpec, examples []string,
) string {
	about := strings.TrimPrefix(sentence(spec.Doc), spec.Name.Name+" ")
	about = strings.TrimPrefix(about, "is ")
	about = strings.ToUpper(about[:1]) + about[1:]
	shape := in.shape(spec.Type, "")
	if strings.HasSuffix(title, "-request.v1") {
		about += " It has exactly these members."
		shape = append(shape, `"additionalProperties": false`)
	} else {
		about += " Members that are not named here are tolerated."
	}
	shown := "[" + strings.Join(examples, ", ") + "]"
	if examples == nil {
		var old struct{ Examples jsontext.Value }
		g.decode(file(title), &old)
		shown = string(old.Examples)
	}
	text := jsontext.Value(fmt.Sprintf(`{"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id": "https://worldengine.example/%s", "title": %q, "description": %s, %s, "examples": %s}`,
		file(title), title, quoted(about), shape, shown))
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		panic(fmt.Sprintf("%s: %s: %s", title, err, text))
	}
	return string(text) + "\n"
}

// declarations are the types of a package.
type declarations map[string]*ast.TypeSpec

// node is a schema, by its members.
type node []string

func (n node) String() string { return strings.Join(n, ", ") }

// shape returns the schema of a type, with the tag of its field. A type of another package is text,
// unless it is one of types, or its tag names a schema.
func (in declarations) shape(of ast.Expr, tag string) node {
	switch of := of.(type) {
	case *ast.StarExpr:
		return in.shape(of.X, tag)
	case *ast.ArrayType:
		each, most, bounded := strings.Cut(tag, "most=")
		list := node{`"type": "array"`, fmt.Sprintf(`"items": {%s}`, in.shape(of.Elt, each))}
		if bounded {
			list = append(list, `"maxItems": `+most)
		}
		return list
	case *ast.MapType:
		return node{`"type": "object"`}
	case *ast.StructType:
		required, properties := in.members(of)
		shape := node{`"type": "object"`}
		if required != nil {
			shape = append(shape, `"required": `+list(required))
		}
		return append(shape, fmt.Sprintf(`"properties": {%s}`, properties))
	case *ast.Ident:
		if spec := in[of.Name]; spec != nil && !strings.HasPrefix(tag, "ref=") {
			return in.shape(spec.Type, tag)
		}
		return rule(types[of.Name], tag)
	case *ast.SelectorExpr:
		if of.Sel.Name == "Value" { // jsontext's
			return rule(nil, tag)
		}
	}
	return rule(types["string"], tag)
}

// members returns the required members of a struct, and the properties of all.
func (in declarations) members(of *ast.StructType) (required []string, properties node) {
	for _, field := range of.Fields.List {
		if field.Names == nil { // it is embedded
			inner := in[field.Type.(*ast.Ident).Name].Type.(*ast.StructType)
			its, more := in.members(inner)
			required, properties = append(required, its...), append(properties, more...)
			continue
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		if options == "" {
			required = append(required, name)
		}
		shape := append(node{`"description": ` + quoted(sentence(field.Doc))},
			in.shape(field.Type, tag.Get("schema"))...)
		properties = append(properties, fmt.Sprintf(`%q: {%s}`, name, shape))
	}
	return required, properties
}

// types are the schemas of the types that others are made of.
var types = map[string]node{
	"string": {`"type": "string"`}, "bool": {`"type": "boolean"`}, "float64": {`"type": "number"`},
	"int": {`"type": "integer"`}, "int64": {`"type": "integer"`}, "uint64": {`"type": "integer"`},
}

// rules are the parts of a schema that a tag may name.
var rules = map[string]string{
	"id":         `"minLength": 1`,
	"hash":       `"pattern": "^[0-9a-f]{64}$"`,
	"handoffId":  `"pattern": "^handoff_[0-9a-f]{64}$"`,
	"proposalId": `"pattern": "^proposal_[0-9a-f]{64}$"`,
	"runId":      `"pattern": "^[^|]{1,256}$"`,
	"noBar":      `"pattern": "^[^|]+$"`,
	"world":      `"pattern": "^[A-Za-z0-9_-]{1,64}$"`,
	"time": `"format": "date-time", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])` +
		`[Tt](([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]|23:59:60)(\\.[0-9]+)?([Zz]|[+-]00:00)$"`,
	"object": `"type": "object"`,
}

// rule returns the schema of a value of a type. Its tag names one of rules, or one=A|B, ref=SCHEMA
// or chars=N-M. An integer has min=N and max=N; without them it is 0 to 2^53-1. Another number has
// min=N; without it it is at least 0. A list has most=N, which comes last.
func rule(shape node, tag string) node {
	n := slices.Clone(shape)
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
			n = node{`"enum": ` + list(strings.Split(value, "|"))}
		case "proposalTypes":
			n = node{`"enum": ` + list(handoff.ProposalTypes())}
		case "runStatuses": // of the run, or of its result
			ofRun := strings.TrimSuffix(list(runevents.RunStatuses()), "]")
			n = node{`"enum": ` + ofRun + ", " + strings.TrimPrefix(list(handoff.Statuses()), "[")}
		case "ref":
			n = node{`"$ref": "` + value + `.schema.json"`}
		default:
			n = append(n, rules[key])
		}
	}
	switch {
	case slices.Equal(shape, types["int"]):
		n = append(n, `"minimum": `+least, `"maximum": `+most)
	case slices.Equal(shape, types["float64"]):
		n = append(n, `"minimum": `+least)
	}
	return n
}

// sentence returns a comment as one line, without its directives.
func sentence(comment *ast.CommentGroup) string {
	return strings.Join(strings.Fields(comment.Text()), " ")
}

func quoted(text string) string { return string(must(jsontext.AppendQuote(nil, text))) }
