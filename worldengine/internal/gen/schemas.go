package main

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
)

// schemas writes the lists in schemas that are not of messages.
func (g *generator) schemas() {
	types := list(handoff.ProposalTypes())
	g.value("proposal.v2", "/properties/type/enum", types)
	g.value("command-apply.v1", "/properties/type/enum", types)
	for _, schema := range []string{"run-event-write.v2", "run-event-record.v2"} {
		for i, level := range []runevents.Level{runevents.StepLevel, runevents.RunLevel} {
			g.value(schema, fmt.Sprintf("/allOf/%d/if/properties/eventType/enum", i),
				list(runevents.EventTypes(level)))
		}
	}
	var rules []string
	for _, t := range handoff.ProposalTypes() {
		rules = append(rules, argsRule(t.Spec()))
	}
	g.value("proposal.v2", "/allOf", "[\n"+strings.Join(rules, ",\n")+"\n  ]")
}

// argsRule says which args a type has.
func argsRule(spec handoff.TypeSpec) string {
	values := `"type": "string", "minLength": 1`
	if spec.Values != nil {
		values = `"enum": ` + list(spec.Values)
	}
	return fmt.Sprintf(`    {
      "if": { "properties": { "type": { "const": %q } }, "required": ["type"] },
      "then": {
        "properties": {
          "args": {
            "title": "args of %s",
            "description": "Maps to the command: %s <townId> <%s>.",
            "type": "object",
            "required": [%q],
            "properties": { %q: { "description": %q, %s } },
            "additionalProperties": false
          }
        }
      }
    }`, spec.Type, spec.Type, spec.Verb, spec.Argument, spec.Argument, spec.Argument,
		spec.Means, values)
}

// list returns texts as a JSON array.
func list[T ~string](values []T) string {
	return "[" + quotes(values) + "]"
}

// schema is a schema, as far as outlines and Python types show it.
type schema struct {
	Ref         string             `json:"$ref"`
	Defs        map[string]*schema `json:"$defs"`
	Type        jsontext.Value     `json:"type"`
	Description string             `json:"description"`
	Const       jsontext.Value     `json:"const"`
	Enum        []string           `json:"enum"`
	Items       *schema            `json:"items"`
	Required    []string           `json:"required"`
	Properties  properties         `json:"properties"`
}

// properties are the members of an object, in the order of its schema.
type properties []property

type property struct {
	name   string
	schema *schema
}

func compareNames(a, b property) int { return strings.Compare(a.name, b.name) }

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (p *properties) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*p = properties{} // not nil, even if the object has no members
	must(in.ReadToken())
	for in.PeekKind() != '}' {
		next := property{name: must(in.ReadToken()).String()}
		must(0, json.UnmarshalDecode(in, &next.schema))
		*p = append(*p, next)
	}
	_, err := in.ReadToken()
	return err
}
