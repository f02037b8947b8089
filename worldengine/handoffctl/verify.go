package handoffctl

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
)

type verifyCommand struct {
	Paths []string `arg:"" name:"path" help:"Files to check, and directories to search for *.json, *.jsonl and *.ndjson that are not hidden; - for standard input."`
}

func (verifyCommand) Help() string {
	return `Checks an execution-handoff.v1, an execution-result.v1 (either revision) or a
snapshot.v1 as the server does: schema, echoes, hashes. The member schemaVersion names the kind of
document; a result of revision 1 has the number 1 there, and a member type. verify checks each
element of an array. Of an object without schemaVersion it checks the members handoff, result and
snapshot, as in fixtures and in the output of other commands with -o json. It prints the ids of each
valid document and every violation of an invalid one. Exits 1 if a document is invalid.

Example:

    handoffctl verify handoff.json`
}

// checkedDocument is a document with the findings of its check.
type checkedDocument struct {
	// File is left out if the command line names one file. Path is the place in the file, "" for
	// the whole file.
	File          string              `json:"file,omitzero"`
	Path          string              `json:"path"`
	Name          string              `json:"name,omitzero"`
	SchemaVersion string              `json:"schemaVersion"`
	Valid         bool                `json:"valid"`
	IDs           map[string]string   `json:"ids,omitempty"`
	Violations    []schemas.Violation `json:"violations,omitempty"`
}

func (c *verifyCommand) Run(a *app) error {
	files, err := filesIn(c.Paths)
	if err != nil {
		return err
	}
	var documents []checkedDocument
	wrong := 0
	for _, file := range files {
		data, err := a.read(file)
		if err != nil {
			return err
		}
		for _, d := range verifyFile(data) {
			if len(files) > 1 {
				d.File = file
			}
			if !d.Valid {
				wrong++
			}
			documents = append(documents, d)
		}
	}
	if len(documents) == 0 {
		return usagef("there is no document in %s", strings.Join(c.Paths, ", "))
	}
	err = a.print(map[string]any{"valid": wrong == 0, "documents": documents}, func(t table) {
		for i := range documents {
			t.document(&documents[i])
		}
	})
	if err == nil && wrong > 0 {
		return failedf("invalid documents: %d of %d", wrong, len(documents))
	}
	return err
}

func (t table) document(d *checkedDocument) {
	verdict := "invalid"
	if d.Valid {
		verdict = "valid"
	}
	for _, part := range []string{d.SchemaVersion, d.File, d.Path, d.Name} {
		if part != "" {
			verdict += " " + show(part)
		}
	}
	t.linef("%s", verdict)
	for _, id := range slices.Sorted(maps.Keys(d.IDs)) {
		t.linef("  %s %s", id, show(d.IDs[id]))
	}
	for _, line := range linesOf(d.Violations) {
		t.linef("  %s", line)
	}
}

// verifyFile checks the documents of a file.
func verifyFile(data []byte) (documents []checkedDocument) {
	elements, many, err := elementsOf(data)
	switch {
	case bytes.HasPrefix(data, byteOrderMark):
		return []checkedDocument{{Violations: []schemas.Violation{
			{Message: "is not JSON: " + sentence(err)}}}}
	case err != nil:
		return []checkedDocument{verify("", "", data)} // which describes the invalid JSON
	}
	for i, element := range elements {
		path := ""
		if many {
			path = schemas.Pointer(i)
		}
		documents = append(documents, verifyElement(path, element)...)
	}
	return documents
}

// verifyElement checks a document, or the documents that an object without schemaVersion holds.
func verifyElement(path string, element jsontext.Value) (documents []checkedDocument) {
	in := unwrap(element)
	var name string
	if in.Name.Kind() == '"' {
		_ = json.Unmarshal(in.Name, &name, lenient) // an unreadable name counts as none
	}
	for _, member := range []struct {
		name  string
		value jsontext.Value
	}{{"handoff", in.Handoff}, {"snapshot", in.Snapshot}, {"result", in.Result}} {
		if member.value != nil {
			at := path + schemas.Pointer(member.name)
			documents = append(documents, verify(at, name, member.value))
		}
	}
	if documents == nil {
		return []checkedDocument{verify(path, name, element)}
	}
	return documents
}

// verify checks one document.
func verify(path, name string, data jsontext.Value) checkedDocument {
	d := checkedDocument{Path: path, Name: name}
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
	if d.Valid = err == nil; !d.Valid {
		d.Violations = violations(err)
	}
	return d
}

// check checks a document of the schema that it names, and sets its ids.
func (d *checkedDocument) check(data jsontext.Value, tree any) error {
	switch schemas.Name(d.SchemaVersion) {
	case schemas.ExecutionHandoff:
		h, err := handoff.FromTree(tree)
		if err == nil {
			d.IDs = map[string]string{"handoffId": h.HandoffID, "proposalId": h.ProposalID,
				"townId": h.Proposal.TownID}
		}
		return err
	case schemas.ExecutionResult:
		r, err := handoff.ParseResult(data, schemas.Limits{})
		if err == nil {
			d.IDs = map[string]string{"resultId": r.ResultID, "handoffId": r.HandoffID,
				"status": string(r.Status)}
		}
		return err
	case schemas.ExecutionResult1:
		r, err := handoff.ParseResult1(data, schemas.Limits{})
		if err == nil {
			d.IDs = map[string]string{"executionId": r.ExecutionID, "handoffId": r.HandoffID,
				"status": string(r.Status)}
		}
		return err
	case schemas.Snapshot:
		s, err := town.FromTree(tree)
		if err == nil {
			d.IDs = map[string]string{"townId": s.Snapshot.TownID, "snapshotHash": s.Hash}
		}
		return err
	}
	return schemas.Invalid("", schemas.Violation{
		Path: schemas.Pointer("schemaVersion"),
		Message: fmt.Sprintf("must be %q, %q or %q",
			schemas.ExecutionHandoff, schemas.ExecutionResult, schemas.Snapshot),
	})
}

type schemaCommand struct {
	Name     string `arg:"" optional:"" help:"Name of the schema; without it the command lists the names."`
	AsyncAPI bool   `name:"asyncapi" help:"Print the AsyncAPI 3.0 document of all verbs, events, plugin requests and errors."`
}

func (schemaCommand) Help() string {
	return `Prints one of the JSON Schemas (draft 2020-12) with which the server checks payloads.
The schema of a run event's payload has the name of the event's type.

Examples:

    handoffctl schema execution-handoff.v1
    handoffctl schema StepFailed
    handoffctl schema --asyncapi`
}

func (c *schemaCommand) Run(a *app) error {
	switch {
	case c.AsyncAPI && c.Name != "":
		return usagef("--asyncapi prints the document of all schemas: leave out %s", c.Name)
	case c.AsyncAPI:
		return a.printRaw([]byte(schemas.AsyncAPI()))
	}
	names := make([]string, 0, len(schemas.Names()))
	for _, name := range schemas.Names() {
		names = append(names, string(name))
	}
	if c.Name == "" {
		return a.print(names, func(t table) { t.linef("%s", strings.Join(names, "\n")) })
	}
	source, err := schemas.Source(schemas.Name(c.Name))
	if errors.Is(err, schemas.ErrUnknownSchema) {
		return usagef("there is no schema %q, but %s", c.Name, strings.Join(names, ", "))
	}
	if err != nil {
		return err
	}
	return a.printRaw(source)
}
