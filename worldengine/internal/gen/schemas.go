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
	quotes := make([]string, len(values))
	for i, value := range values {
		quotes[i] = strconv.Quote(string(value))
	}
	return "[" + strings.Join(quotes, ", ") + "]"
}
