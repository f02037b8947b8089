package main

import (
	"slices"
	"strings"

	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// shapes are the outlines of requests and replies, of which each schema is shown once.
type shapes struct {
	g     *generator
	shown map[schemas.Name]wire.Verb
}

func (s shapes) request(v wire.Verb) string { return s.shape(v, schemas.RequestOf(string(v))) }
func (s shapes) reply(v wire.Verb) string   { return s.shape(v, schemas.ReplyOf(string(v))) }

func (s shapes) shape(verb wire.Verb, name schemas.Name) string {
	if first, is := s.shown[name]; is {
		return "as `" + string(first) + "`"
	}
	s.shown[name] = verb
	return s.g.outline(name)
}

// outline returns the members of a schema of a request or a reply, and of the objects in it. Of
// another schema it returns the name.
func (g *generator) outline(name schemas.Name) string {
	if !strings.HasSuffix(string(name), "-request.v1") && !strings.HasSuffix(string(name), "-reply.v1") {
		return "`" + string(name) + "`"
	}
	var root schema
	g.decode(file(name), &root)
	return "`" + root.outline(root.Defs) + "`"
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
