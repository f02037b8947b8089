package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/wire"
)

// docs writes the tables of the docs.
func (g *generator) docs() {
	types := rows("type", "short name", "argument", "command", "effect by the built-in rules")
	for _, t := range handoff.ProposalTypes() {
		spec := t.Spec()
		argument := code(spec.Argument)
		if spec.Values != nil {
			argument += ": " + codes(spec.Values)
		}
		types.row(code(t), code(spec.Name), argument, code(spec.Verb+" <townId> <"+spec.Argument+">"), spec.Does)
	}
	errors := rows("status", "code", "when")
	for _, e := range protocol.Errors() {
		errors.row(strconv.Itoa(e.Status), code(e.Code), e.When)
	}
	g.table("docs/contracts.md", "errors", errors.String())
	alerts := rows("code", "severity", "meaning", "to do")
	for _, a := range protocol.Alerts() {
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
	clients := slices.DeleteFunc(protocol.Roles(), func(r wire.Role) bool { return r == wire.Engine })
	head := []string{""}
	for _, role := range clients {
		head = append(head, string(role))
	}
	rights := rows(head...)
	shown := map[schemas.Name]wire.Verb{}
	for _, verb := range protocol.Verbs() {
		spec := protocol.LookupVerb(verb)
		cells := []string{code(verb)}
		for _, name := range []schemas.Name{
			schemas.RequestOf(string(verb)), schemas.ReplyOf(string(verb)),
		} {
			if shown[name] == "" {
				shown[name] = verb
				cells = append(cells, g.outline(name))
			} else {
				cells = append(cells, "as "+code(shown[name]))
			}
		}
		shapes.row(cells...)
		cells = []string{code(verb)}
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
	for _, role := range protocol.Roles() {
		spec := protocol.LookupRole(role)
		var bounds []string
		for _, bound := range []struct {
			name    string
			allowed bool
		}{{"worlds", spec.Worlds}, {"towns", spec.Towns}, {"actors", spec.Actors}, {"read", spec.Read}} {
			if bound.allowed {
				bounds = append(bounds, bound.name)
			}
		}
		roles.row(code(role), spec.Does, codes(bounds))
	}
	g.table("docs/access.md", "roles", roles.String())
}

// outline returns the members of a schema of a request or a reply, and of the objects in it. Of
// another schema it returns the name.
func (g *generator) outline(name schemas.Name) string {
	if !strings.HasSuffix(string(name), "-request.v1") && !strings.HasSuffix(string(name), "-reply.v1") {
		return code(name)
	}
	var root schema
	g.decode(file(name), &root)
	return code(root.outline(root.Defs))
}

func (s *schema) outline(defs map[string]*schema) string {
	if name, own := strings.CutPrefix(s.Ref, "#/$defs/"); own {
		return defs[name].outline(defs)
	}
	switch {
	case s.Ref != "":
		return strings.TrimSuffix(s.Ref, ".schema.json")
	case s.Items != nil:
		return "[" + s.Items.outline(defs) + "]"
	case s.Properties == nil:
		return ""
	}
	var required, optional []string
	for _, m := range slices.SortedFunc(slices.Values(s.Properties), compareNames) {
		about := m.schema.outline(defs)
		if about == "[]" { // a list of texts or numbers
			about = ""
		}
		if about != "" {
			about = ": " + about
		}
		if slices.Contains(s.Required, m.name) {
			required = append(required, m.name+about)
		} else {
			optional = append(optional, m.name+"?"+about)
		}
	}
	return "{" + strings.Join(append(required, optional...), ", ") + "}"
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
