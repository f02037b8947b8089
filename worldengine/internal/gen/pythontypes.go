package main

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
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
	types := typedDicts{read: func(name string) jsontext.Value { return jsontext.Value(g.read(name)) },
		bodies: map[string]string{}}
	for _, message := range pythonMessages {
		types.files = append(types.files, message[0]+".schema.json")
		types.names = append(types.names, message[1])
	}
	for i, name := range types.names {
		types.class(name, types.read("schemas/"+types.files[i]), types.files[i])
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
	read         func(file string) jsontext.Value
	files, names []string
	bodies       map[string]string // the written classes
	out          strings.Builder
}

// schema is a schema, as far as its Python type shows it.
type schema struct {
	Ref         string         `json:"$ref"`
	Type        jsontext.Value `json:"type"`
	Description string         `json:"description"`
	Const       jsontext.Value `json:"const"`
	Enum        []string       `json:"enum"`
	Items       jsontext.Value `json:"items"`
	Required    []string       `json:"required"`
	Properties  jsontext.Value `json:"properties"`
}

// class writes the class of an object, after the classes of the objects in it.
func (t *typedDicts) class(name string, text jsontext.Value, file string) {
	var s schema
	must(0, json.Unmarshal(text, &s))
	var required, optional, keywords []string
	for member := range members(s.Properties) {
		var m schema
		must(0, json.Unmarshal(member.value, &m))
		kind := t.kind(name, member.name, member.value, file)
		about := m.Description
		if member.name == "from" { // a word of the language
			keywords = append(keywords, fmt.Sprintf("%q: %q", member.name, kind))
			continue
		}
		line := fmt.Sprintf("    %s: %s\n%s", member.name, kind, docstring(about))
		if slices.Contains(s.Required, member.name) {
			required = append(required, line)
		} else {
			optional = append(optional, line)
		}
	}
	var out strings.Builder
	base := "TypedDict"
	if required != nil && optional != nil {
		fmt.Fprintf(&out, "\n\nclass _%s(TypedDict):\n%s", name, strings.Join(required, ""))
		base, required = "_"+name, nil
	}
	if keywords != nil {
		fmt.Fprintf(&out, "\n\n_%sKeywords = TypedDict(\"_%[1]sKeywords\", {%s}, total=False)\n", name,
			strings.Join(keywords, ", "))
		base += ", _" + name + "Keywords"
	}
	if optional != nil {
		base += ", total=False"
	}
	about := docstring(s.Description)
	if about == "" {
		about = docstring("A part of a message.")
	}
	fmt.Fprintf(&out, "\n\nclass %s(%s):\n%s\n%s", name, base, about, strings.Join(append(required, optional...), ""))
	if before, written := t.bodies[name]; written && before != out.String() {
		panic("two Python types have the name " + name)
	} else if !written {
		t.bodies[name] = out.String()
		t.out.WriteString(out.String())
	}
}

// kind returns the type of a member, and writes the classes that it needs.
func (t *typedDicts) kind(owner, member string, text jsontext.Value, file string) string {
	place := owner + "." + member
	var s schema
	must(0, json.Unmarshal(text, &s))
	switch {
	case pythonOpen[place] != "":
		return pythonOpen[place]
	case s.Ref != "":
		return t.referred(owner, member, s.Ref, file)
	case s.Const != nil && s.Const.Kind() == '"':
		return "Literal[" + string(s.Const) + "]"
	case s.Const != nil:
		return "bool"
	case s.Enum != nil:
		return "Literal" + list(s.Enum)
	case s.Items != nil:
		return "list[" + t.kind(owner, member, s.Items, file) + "]"
	case s.Properties != nil:
		name := pythonNames[place]
		if name == "" {
			name = owner + strings.ToUpper(member[:1]) + strings.TrimSuffix(member[1:], "s")
		}
		t.class(name, text, file)
		return name + nullable(s.Type)
	}
	return scalar(s.Type)
}

// referred returns the type of a reference.
func (t *typedDicts) referred(owner, member, ref, file string) string {
	target, pointer, inner := strings.Cut(ref, "#/$defs/")
	if target == "" {
		target = file
	}
	if !inner {
		return t.names[slices.Index(t.files, target)]
	}
	var whole struct {
		Defs map[string]jsontext.Value `json:"$defs"`
	}
	must(0, json.Unmarshal(t.read("schemas/"+target), &whole))
	definition := whole.Defs[pointer]
	if !bytes.Contains(definition, []byte(`"properties"`)) {
		return t.kind(owner, member, definition, target)
	}
	name := strings.ToUpper(pointer[:1]) + pointer[1:]
	t.class(name, definition, target)
	return name
}

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

// member is a member of a JSON object.
type member struct {
	name  string
	value jsontext.Value
}

// members iterates over the members of a JSON object, in their order.
func members(object jsontext.Value) iter.Seq[member] {
	return func(yield func(member) bool) {
		if object == nil {
			return
		}
		in := jsontext.NewDecoder(bytes.NewReader(object))
		must(in.ReadToken())
		for in.PeekKind() != '}' {
			name := must(in.ReadToken()).String()
			if !yield(member{name, must(in.ReadValue()).Clone()}) {
				return
			}
		}
	}
}
