package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// verifyCommand checks documents offline.
type verifyCommand struct {
	File string `arg:"" help:"File to check, - for standard input."`
}

// Help is the command's long help.
func (verifyCommand) Help() string {
	return `Checks an execution-handoff.v1, an execution-result.v1 or a snapshot.v1, told by its schemaVersion, as
the server does: schema, echoes, hashes. Of an array each element is checked, and of an object
without schemaVersion its members handoff, result and snapshot: fixtures, and what the other commands
print with -o json. Prints what is valid with its ids, and of what is not every violation with its
path; exits 1 when there is one.

Example:

    handoffctl verify handoff.json`
}

// verdict is what the check of one document says.
type verdict struct {
	// Path is where in the file the document is, "" for the whole.
	Path          string              `json:"path"`
	Name          string              `json:"name,omitzero"`
	SchemaVersion string              `json:"schemaVersion"`
	Valid         bool                `json:"valid"`
	IDs           map[string]string   `json:"ids,omitempty"`
	Violations    []schemas.Violation `json:"violations,omitempty"`

	ids string // the same for people, in their order
}

// Run checks the file.
func (c *verifyCommand) Run(a *app) error {
	data, err := a.read(c.File)
	if err != nil {
		return err
	}
	var verdicts []verdict
	elements, isArray, err := elementsOf(data)
	if err != nil {
		verdicts = []verdict{verify("", "", data)} // which says what is wrong with the JSON
	}
	for i, element := range elements {
		path := ""
		if isArray {
			path = schemas.Pointer(i)
		}
		verdicts = append(verdicts, verifyElement(path, element)...)
	}
	wrong := 0
	for i := range verdicts {
		if !verdicts[i].Valid {
			wrong++
		}
	}
	if err := a.printVerdicts(verdicts, wrong); err != nil {
		return err
	}
	if wrong > 0 {
		return &failedError{fmt.Sprintf("%d of %d documents are invalid", wrong, len(verdicts))}
	}
	return nil
}

// verifyElement checks a document, or the documents that an object without schemaVersion holds.
func verifyElement(path string, element jsontext.Value) []verdict {
	var parts struct {
		SchemaVersion jsontext.Value `json:"schemaVersion"`
		Name          jsontext.Value `json:"name"`
		Handoff       jsontext.Value `json:"handoff"`
		Snapshot      jsontext.Value `json:"snapshot"`
		Result        jsontext.Value `json:"result"`
	}
	if element.Kind() != '{' || json.Unmarshal(element, &parts, lenient) != nil || parts.SchemaVersion != nil {
		return []verdict{verify(path, "", element)}
	}
	var name string
	if parts.Name.Kind() == '"' {
		_ = json.Unmarshal(parts.Name, &name, lenient) // a name that cannot be read is none
	}
	var verdicts []verdict
	for _, member := range []struct {
		name  string
		value jsontext.Value
	}{{"handoff", parts.Handoff}, {"snapshot", parts.Snapshot}, {"result", parts.Result}} {
		if member.value != nil {
			verdicts = append(verdicts, verify(path+schemas.Pointer(member.name), name, member.value))
		}
	}
	if verdicts == nil {
		return []verdict{verify(path, name, element)}
	}
	return verdicts
}

// verify checks one document.
func verify(path, name string, data jsontext.Value) verdict {
	v := verdict{Path: path, Name: name, IDs: map[string]string{}}
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err == nil {
		object, _ := tree.(map[string]any)
		v.SchemaVersion, _ = object["schemaVersion"].(string)
		err = v.check(data, tree)
	}
	v.Valid = err == nil
	if err != nil {
		v.Violations = violations(err)
	}
	return v
}

// check checks a document of the schema that it names.
func (v *verdict) check(data jsontext.Value, tree any) error {
	switch schemas.Name(v.SchemaVersion) {
	case schemas.ExecutionHandoff:
		h, err := handoff.FromTree(tree)
		if err != nil {
			return err
		}
		v.id("handoffId", h.HandoffID)
		v.id("proposalId", h.ProposalID)
		v.id("townId", h.Proposal.TownID)
	case schemas.ExecutionResult:
		r, err := handoff.ParseResult(data, schemas.Limits{})
		if err != nil {
			return err
		}
		v.id("resultId", r.ResultID)
		v.id("handoffId", r.HandoffID)
		v.id("status", string(r.Status))
	case schemas.Snapshot:
		s, err := town.FromTree(tree)
		if err != nil {
			return err
		}
		v.id("townId", s.Snapshot.TownID)
		v.id("snapshotHash", s.Hash)
	default:
		return schemas.Invalid("", schemas.Violation{
			Path: schemas.Pointer("schemaVersion"),
			Message: fmt.Sprintf("must be %q, %q or %q",
				schemas.ExecutionHandoff, schemas.ExecutionResult, schemas.Snapshot),
		})
	}
	return nil
}

func (v *verdict) id(name, value string) {
	v.IDs[name] = value
	v.ids += "  " + name + " " + show(value) + "\n"
}

func (a *app) printVerdicts(verdicts []verdict, wrong int) error {
	if a.json() {
		return a.printJSON(map[string]any{"valid": wrong == 0, "documents": verdicts})
	}
	var b strings.Builder
	for i := range verdicts {
		v := &verdicts[i]
		word := "invalid"
		if v.Valid {
			word = "valid"
		}
		fmt.Fprintf(&b, "%s", word)
		for _, part := range []string{v.SchemaVersion, v.Path, v.Name} {
			if part != "" {
				fmt.Fprintf(&b, " %s", show(part))
			}
		}
		fmt.Fprintf(&b, "\n%s", v.ids)
		for _, violation := range v.Violations {
			fmt.Fprintf(&b, "  %s: %s\n", orWhole(violation.Path), violation.Message)
		}
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}
