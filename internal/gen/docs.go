package main

import (
	"fmt"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// docs writes the tables of the docs.
func (g *generator) docs() {
	types := rows("type", "short name", "argument", "effect by the built-in rules")
	for _, t := range handoff.ProposalTypes() {
		spec := t.Spec()
		argument := code(spec.Argument)
		if spec.Values != nil {
			argument += ": " + codes(spec.Values)
		}
		types.row(code(t), code(spec.Name), argument, spec.Does)
	}
	errors := rows("status", "code", "when", "ask again")
	for _, e := range wire.Errors() {
		errors.row(strconv.Itoa(e.Status), code(e.Code), e.When, e.Again)
	}
	g.table("docs/contracts.md", "errors", errors.String())
	g.table("docs/plugin-protocol.md", "proposal types", types.String())
}

// markdown is a table.
type markdown struct{ strings.Builder }

// rows returns a table with its head.
func rows(head ...string) *markdown {
	table := &markdown{}
	table.row(head...)
	fmt.Fprintf(table, "|%s\n", strings.Repeat("---|", len(head)))
	return table
}

func (m *markdown) row(cells ...string) {
	fmt.Fprintf(m, "| %s |\n", strings.Join(cells, " | "))
}

func code[T ~string](text T) string { return "`" + string(text) + "`" }

func codes[T ~string](texts []T) string {
	var all []string
	for _, text := range texts {
		all = append(all, code(text))
	}
	return strings.Join(all, ", ")
}
