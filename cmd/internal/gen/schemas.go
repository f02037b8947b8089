package main

import (
	"fmt"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/runevents"
)

// schemas writes the lists in schemas that are not of messages.
func (g *generator) schemas() {
	types := list(handoff.ProposalTypes(), "")
	g.value("proposal.v2", "/properties/type/enum", types)
	g.value("command-apply.v1", "/properties/type/enum", types)
	for _, schema := range []string{"run-event-write.v2", "run-event-record.v2"} {
		for i, level := range []runevents.Level{runevents.OfStep, runevents.OfRun} {
			g.value(schema, fmt.Sprintf("/allOf/%d/if/properties/eventType/enum", i),
				list(runevents.EventTypes(level), ""))
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
		values = `"enum": ` + list(spec.Values, "")
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

// list returns texts as a JSON array: in one line, or with an indent in lines of 100 characters.
func list[T ~string](values []T, indent string) string {
	var out strings.Builder
	line := 0
	for i, value := range values {
		text := strconv.Quote(string(value))
		if i > 0 {
			out.WriteString(",")
			if line+len(text) > 96 && indent != "" {
				out.WriteString("\n" + indent)
				line = 0
			} else {
				out.WriteString(" ")
			}
		}
		out.WriteString(text)
		line += len(text) + 2
	}
	if indent == "" {
		return "[" + out.String() + "]"
	}
	return "[\n" + indent + out.String() + "\n" + indent[2:] + "]"
}
