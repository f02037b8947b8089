package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// pythonMessages are the schemas whose types the Python client has, with the names of their classes.
var pythonMessages = [][2]string{
	{"snapshot.v1", "Snapshot"},
	{"proposal.v2", "Proposal"},
	{"execution-handoff.v1", "Handoff"},
	{"execution-result.v1", "Result0"},
	{"execution-result-revision-1.v1", "Result1"},
	{"run-event-record.v2", "RunEvent"},
	{"commit.v1", "Commit"},
	{"town-get-reply.v1", "Town"},
	{"town-list-reply.v1", "TownList"},
	{"worlds-list-reply.v1", "WorldList"},
	{"town-remove-reply.v1", "RemovedTown"},
	{"town-history-reply.v1", "TownHistory"},
	{"run-get-reply.v1", "Run"},
	{"alert-list-reply.v1", "AlertList"},
	{"approval-list-reply.v1", "ApprovalList"},
	{"approval-decide-reply.v1", "Decided"},
	{"control-reply.v1", "Control"},
	{"whoami-reply.v1", "Whoami"},
	{"world-memory-context.v1", "Memory"},
	{"artifact.v1", "Artifact"},
	{"command-apply.v1", "Command"},
	{"command-applied.v1", "Answer"},
}

// pythonNames are names of classes that do not follow from their place, and types that schemas leave open.
var pythonNames = map[string]string{
	"TownList.towns": "ListedTown", "WorldList.worlds": "ListedWorld", "ApprovalList.approvals": "Approval", "TownHistory.revisions": "Revision",
	"Approval.expected": "ExpectedChange", "Town.pluginAbsent": "AbsentPlugin", "Result0.evaluation": "Evaluation",
	"Result1.evaluation": "Evaluation", "Result0.worldState": "WorldState", "Result1.worldState": "WorldState",
}

var pythonOpen = map[string]string{
	"Approval.proposal": "Proposal", "Run.pluginAbsent": "AbsentPlugin", "Answer.snapshot": "Snapshot",
	"Answer.artifacts": "list[Artifact]", "Answer.embodiment": "dict[str, Any]", "RunStep.artifacts": "list[Artifact]", "Run.artifacts": "list[Artifact]",
}

// pythonTypes returns the module of types: a TypedDict for each object of the schemas.
func (g *generator) pythonTypes() string {
	types := typedDicts{g: g, names: map[string]string{}, bodies: map[string]string{}}
	for _, message := range pythonMessages {
		types.names[message[0]] = message[1]
	}
	for _, message := range pythonMessages {
		types.class(message[1], types.schema(message[0]), message[0])
	}
	return generatedPython + `"""The types of messages, as their schemas have them. A newer server may send further members."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union
` + types.out.String() + `

Result = Union[Result0, Result1]
"""An execution-result.v1, of either revision."""
`
}

// typedDicts collects classes.
type typedDicts struct {
	g      *generator
	names  map[string]string // of the classes of whole schemas
	bodies map[string]string // the written classes
	out    strings.Builder
}

func (t *typedDicts) schema(name string) (s *schema) {
	t.g.decode(file(name), &s)
	return s
}

// class writes the class of an object of a schema, after the classes of the objects in it.
func (t *typedDicts) class(name string, s *schema, within string) {
	var required, optional, keywords string
	for _, m := range s.Properties {
		kind := t.kind(name, m.name, m.schema, within)
		line := fmt.Sprintf("    %s: %s\n%s", m.name, kind, docstring(m.schema.Description))
		switch {
		case m.name == "from": // a word of the language
			keywords = fmt.Sprintf("%q: %q", m.name, kind)
		case slices.Contains(s.Required, m.name):
			required += line
		default:
			optional += line
		}
	}
	body, base := "", "TypedDict"
	if required != "" && optional != "" {
		body = fmt.Sprintf("\n\nclass _%s(TypedDict):\n%s", name, required)
		base, required = "_"+name, ""
	}
	if keywords != "" {
		body += fmt.Sprintf("\n\n_%sKeywords = TypedDict(\"_%[1]sKeywords\", {%s}, total=False)\n", name, keywords)
		base += ", _" + name + "Keywords"
	}
	if optional != "" {
		base += ", total=False"
	}
	about := docstring(cmp.Or(s.Description, "A part of a message."))
	body += fmt.Sprintf("\n\nclass %s(%s):\n%s\n%s", name, base, about, required+optional)
	if before, written := t.bodies[name]; written && before != body {
		panic("two Python types have the name " + name)
	} else if !written {
		t.bodies[name] = body
		t.out.WriteString(body)
	}
}

// kind returns the type of a member, and writes the classes that it needs.
func (t *typedDicts) kind(owner, member string, s *schema, within string) string {
	place := owner + "." + member
	switch {
	case pythonOpen[place] != "":
		return pythonOpen[place]
	case s.Ref != "":
		return t.referred(owner, member, s.Ref, within)
	case s.Const != nil && s.Const.Kind() == '"':
		return "Literal[" + string(s.Const) + "]"
	case s.Const != nil:
		return "bool"
	case s.Enum != nil:
		return "Literal" + list(s.Enum)
	case s.Items != nil:
		return "list[" + t.kind(owner, member, s.Items, within) + "]"
	case s.Properties != nil:
		name := cmp.Or(pythonNames[place], owner+capital(strings.TrimSuffix(member, "s")))
		t.class(name, s, within)
		return name + nullable(s.Type)
	}
	return scalar(s.Type)
}

// referred returns the type of a reference.
func (t *typedDicts) referred(owner, member, ref, within string) string {
	target, definition, inner := strings.Cut(ref, "#/$defs/")
	target = cmp.Or(strings.TrimSuffix(target, ".schema.json"), within)
	if !inner {
		return t.names[target]
	}
	s := t.schema(target).Defs[definition]
	if s.Properties == nil {
		return t.kind(owner, member, s, target)
	}
	t.class(capital(definition), s, target)
	return capital(definition)
}

func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

func nullable(kind jsontext.Value) string {
	if bytes.Contains(kind, []byte(`"null"`)) {
		return " | None"
	}
	return ""
}

func scalar(kind jsontext.Value) string {
	names := [][2]string{{"string", "str"}, {"integer", "int"}, {"number", "float"}, {"boolean", "bool"},
		{"object", "dict[str, Any]"}, {"array", "list[Any]"}}
	var all []string
	for _, name := range names {
		if bytes.Contains(kind, []byte(`"`+name[0]+`"`)) {
			all = append(all, name[1])
		}
	}
	if all == nil {
		return "Any"
	}
	return strings.Join(all, " | ") + nullable(kind)
}

// docstring returns a text as a docstring within a class, of at most 100 columns.
func docstring(text string) string {
	if text == "" {
		return ""
	}
	text = strings.TrimSuffix(strconv.Quote(text), `"`)[1:]
	lines, column := "    \"\"\"", 7
	for i, word := range strings.Fields(strings.ReplaceAll(text, `\"`, "'")) {
		switch {
		case i > 0 && column+1+len(word) > 96:
			lines, column = lines+"\n    ", 4
		case i > 0:
			lines, column = lines+" ", column+1
		}
		lines, column = lines+word, column+len(word)
	}
	return lines + "\"\"\"\n"
}
