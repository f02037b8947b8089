package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/metrics"
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
		again := "no"
		if e.RetryAfter > 0 {
			again = "yes"
		}
		errors.row(strconv.Itoa(e.Status), code(e.Code), cmp.Or(e.When, e.Text),
			cmp.Or(e.Again, again))
	}
	g.table("docs/contracts.md", "errors", errors.String())
	alerts := rows("code", "severity", "meaning", "to do")
	for _, a := range runevents.Alerts() {
		alerts.row(code(a.Code), string(a.Severity), a.Means, a.Todo)
	}
	g.table("docs/contracts.md", "alerts", alerts.String())
	measured := rows("metric", "labels", "meaning")
	for _, m := range metrics.Specs() {
		measured.row(code(m.Name), codes(m.Labels), m.Help)
	}
	g.table("docs/operators.md", "metrics", measured.String())
	g.verbs()
	g.table("docs/plugin-protocol.md", "proposal types", types.String())
}

// verbs writes the verbs, and the roles that may send each. The engine may send all.
func (g *generator) verbs() {
	shapes := rows("verb", "request", "reply")
	clients := slices.DeleteFunc(wire.Roles(), func(r wire.Role) bool { return r == wire.Engine })
	head := []string{""}
	for _, role := range clients {
		head = append(head, string(role))
	}
	rights := rows(head...)
	for _, verb := range wire.Verbs() {
		spec := verb.Spec()
		shapes.row(code(verb), spec.Request, spec.Reply)
		cells := []string{code(verb)}
		for _, role := range clients {
			cell := ""
			if slices.Contains(spec.Roles, role) {
				cell = "yes"
			}
			cells = append(cells, cell)
		}
		rights.row(cells...)
	}
	g.table("docs/contracts.md", "verbs", shapes.String())
	g.table("docs/access.md", "verbs by role", rights.String())
	roles := rows("role", "purpose", "may be bound by")
	for _, role := range wire.Roles() {
		spec := role.Spec()
		var bounds []string
		for _, bound := range []struct {
			name string
			may  bool
		}{{"towns", spec.Towns}, {"actors", spec.Actors}, {"read", spec.Read}} {
			if bound.may {
				bounds = append(bounds, bound.name)
			}
		}
		roles.row(code(role), spec.Does, codes(bounds))
	}
	g.table("docs/access.md", "roles", roles.String())
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
	for _, cell := range cells {
		m.WriteString(strings.TrimRight("| "+cell, " ") + " ")
	}
	m.WriteString("|\n")
}

func code[T ~string](text T) string { return "`" + string(text) + "`" }

func codes[T ~string](texts []T) string {
	var all []string
	for _, text := range texts {
		all = append(all, code(text))
	}
	return strings.Join(all, ", ")
}
