package main

import (
	"bytes"
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
	Paths []string `arg:"" name:"path" help:"Files to check, and directories whose *.json, *.jsonl and *.ndjson are; - for standard input."`
}

// Help is the command's long help.
func (verifyCommand) Help() string {
	return `Checks an execution-handoff.v1, an execution-result.v1 (of either revision) or a
snapshot.v1 as the server does: schema, echoes, hashes. The member schemaVersion says which of them
a document is; a result of revision 1 has the number 1 there, and a member type. Of an array, verify
checks each element; of an object without schemaVersion, its members handoff, result and snapshot,
as fixtures and the other commands' -o json have them. Prints the ids of each valid document, and
every violation of an invalid one with its path. Exits 1 when a document is invalid.

Example:

    handoffctl verify handoff.json`
}

// checkedDocument is a document with the findings of its check.
type checkedDocument struct {
	// File is where the document is, left out where only one was named; Path is where in the file,
	// "" for the whole.
	File          string              `json:"file,omitzero"`
	Path          string              `json:"path"`
	Name          string              `json:"name,omitzero"`
	SchemaVersion string              `json:"schemaVersion"`
	Valid         bool                `json:"valid"`
	IDs           map[string]string   `json:"ids,omitempty"`
	Violations    []schemas.Violation `json:"violations,omitempty"`

	ids string // the same for people, in their order
}

// Run checks the files.
func (c *verifyCommand) Run(a *app) error {
	files, err := filesIn(c.Paths)
	if err != nil {
		return err
	}
	var documents []checkedDocument
	for _, file := range files {
		found, err := verifyFile(a, file)
		if err != nil {
			return err
		}
		for i := range found {
			if len(files) > 1 {
				found[i].File = file
			}
		}
		documents = append(documents, found...)
	}
	if len(documents) == 0 {
		return usagef("there is no document in %s", strings.Join(c.Paths, ", "))
	}
	wrong := 0
	for i := range documents {
		if !documents[i].Valid {
			wrong++
		}
	}
	if err := a.printDocuments(documents, wrong); err != nil {
		return err
	}
	if wrong > 0 {
		return &failedError{fmt.Sprintf("invalid documents: %d of %d", wrong, len(documents))}
	}
	return nil
}

// verifyFile checks the documents of a file.
func verifyFile(a *app, file string) ([]checkedDocument, error) {
	data, err := a.read(file)
	if err != nil {
		return nil, err
	}
	elements, many, err := elementsOf(data)
	switch {
	case bytes.HasPrefix(data, byteOrderMark):
		d := checkedDocument{Violations: []schemas.Violation{{Message: "is not JSON: " +
			sentence(err)}}}
		return []checkedDocument{d}, nil
	case err != nil:
		// which says what is wrong with the JSON
		return []checkedDocument{verify("", "", data)}, nil
	}
	var documents []checkedDocument
	for i, element := range elements {
		path := ""
		if many {
			path = schemas.Pointer(i)
		}
		documents = append(documents, verifyElement(path, element)...)
	}
	return documents, nil
}

// verifyElement checks a document, or the documents that an object without schemaVersion holds.
func verifyElement(path string, element jsontext.Value) []checkedDocument {
	var parts struct {
		SchemaVersion jsontext.Value `json:"schemaVersion"`
		Name          jsontext.Value `json:"name"`
		Handoff       jsontext.Value `json:"handoff"`
		Snapshot      jsontext.Value `json:"snapshot"`
		Result        jsontext.Value `json:"result"`
	}
	if element.Kind() != '{' || json.Unmarshal(element, &parts, lenient) != nil ||
		parts.SchemaVersion != nil {
		return []checkedDocument{verify(path, "", element)}
	}
	var name string
	if parts.Name.Kind() == '"' {
		_ = json.Unmarshal(parts.Name, &name, lenient) // a name that cannot be read is none
	}
	var documents []checkedDocument
	for _, member := range []struct {
		name  string
		value jsontext.Value
	}{{"handoff", parts.Handoff}, {"snapshot", parts.Snapshot}, {"result", parts.Result}} {
		if member.value != nil {
			documents = append(documents, verify(path+schemas.Pointer(member.name), name,
				member.value))
		}
	}
	if documents == nil {
		return []checkedDocument{verify(path, name, element)}
	}
	return documents
}

// verify checks one document.
func verify(path, name string, data jsontext.Value) checkedDocument {
	d := checkedDocument{Path: path, Name: name, IDs: map[string]string{}}
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err == nil {
		object, _ := tree.(map[string]any)
		d.SchemaVersion, _ = object["schemaVersion"].(string)
		if object["type"] == handoff.ResultVersion &&
			object["schemaVersion"] == float64(handoff.Revision1) {
			d.SchemaVersion = string(schemas.ExecutionResult1)
		}
		err = d.check(data, tree)
	}
	d.Valid = err == nil
	if err != nil {
		d.Violations = violations(err)
	}
	return d
}

// check checks a document of the schema that it names.
func (d *checkedDocument) check(data jsontext.Value, tree any) error {
	switch schemas.Name(d.SchemaVersion) {
	case schemas.ExecutionHandoff:
		h, err := handoff.FromTree(tree)
		if err != nil {
			return err
		}
		d.id("handoffId", h.HandoffID)
		d.id("proposalId", h.ProposalID)
		d.id("townId", h.Proposal.TownID)
	case schemas.ExecutionResult:
		r, err := handoff.ParseResult(data, schemas.Limits{})
		if err != nil {
			return err
		}
		d.id("resultId", r.ResultID)
		d.id("handoffId", r.HandoffID)
		d.id("status", string(r.Status))
	case schemas.ExecutionResult1:
		r, err := handoff.ParseResult1(data, schemas.Limits{})
		if err != nil {
			return err
		}
		d.id("executionId", r.ExecutionID)
		d.id("handoffId", r.HandoffID)
		d.id("status", string(r.Status))
	case schemas.Snapshot:
		s, err := town.FromTree(tree)
		if err != nil {
			return err
		}
		d.id("townId", s.Snapshot.TownID)
		d.id("snapshotHash", s.Hash)
	default:
		return schemas.Invalid("", schemas.Violation{
			Path: schemas.Pointer("schemaVersion"),
			Message: fmt.Sprintf("must be %q, %q or %q",
				schemas.ExecutionHandoff, schemas.ExecutionResult, schemas.Snapshot),
		})
	}
	return nil
}

func (d *checkedDocument) id(name, value string) {
	d.IDs[name] = value
	d.ids += "  " + name + " " + show(value) + "\n"
}

func (a *app) printDocuments(documents []checkedDocument, wrong int) error {
	if a.json() {
		return a.printJSON(map[string]any{"valid": wrong == 0, "documents": documents})
	}
	var b strings.Builder
	for i := range documents {
		d := &documents[i]
		word := "invalid"
		if d.Valid {
			word = "valid"
		}
		fmt.Fprintf(&b, "%s", word)
		for _, part := range []string{d.SchemaVersion, d.File, d.Path, d.Name} {
			if part != "" {
				fmt.Fprintf(&b, " %s", show(part))
			}
		}
		fmt.Fprintf(&b, "\n%s", d.ids)
		for _, violation := range d.Violations {
			fmt.Fprintf(&b, "  %s: %s\n", orWhole(violation.Path), violation.Message)
		}
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}
