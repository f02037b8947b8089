// Package verify checks handoffs, results and snapshots in files, as the server does.
package verify

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/jsonfiles"
	"worldengine/worldengine/internal/kit/phrase"
)

// Document is a document with the findings of its check.
type Document struct {
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

// File checks the documents of a file.
func File(data []byte) (found []Document) {
	elements, many, err := jsonfiles.Split(data)
	switch {
	case errors.Is(err, jsonfiles.ErrByteOrderMark):
		return []Document{{Violations: []schemas.Violation{
			{Message: "is not JSON: " + phrase.Sentence(err)}}}}
	case err != nil:
		return []Document{check("", "", data)} // which describes the invalid JSON
	}
	for i, element := range elements {
		path := ""
		if many {
			path = schemas.Pointer(i)
		}
		found = append(found, checkElement(path, element)...)
	}
	return found
}

// checkElement checks a document, or the documents that an object without schemaVersion holds.
func checkElement(path string, element jsontext.Value) (found []Document) {
	in := jsonfiles.Unwrap(element)
	var name string
	if in.Name.Kind() == '"' {
		_ = json.Unmarshal(in.Name, &name, jsonfiles.Lenient) // an unreadable name counts as none
	}
	for _, member := range []struct {
		name  string
		value jsontext.Value
	}{{"handoff", in.Handoff}, {"snapshot", in.Snapshot}, {"result", in.Result}} {
		if member.value != nil {
			at := path + schemas.Pointer(member.name)
			found = append(found, check(at, name, member.value))
		}
	}
	if found == nil {
		return []Document{check(path, name, element)}
	}
	return found
}

// check checks one document.
func check(path, name string, data jsontext.Value) Document {
	d := Document{Path: path, Name: name}
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err == nil {
		object, _ := tree.(map[string]any)
		d.SchemaVersion, _ = object["schemaVersion"].(string)
		if object["type"] == handoff.ResultVersion &&
			object["schemaVersion"] == float64(handoff.Revision1) {
			d.SchemaVersion = string(schemas.ExecutionResult1)
		}
		err = d.parse(data, tree)
	}
	if d.Valid = err == nil; !d.Valid {
		d.Violations = Violations(err)
	}
	return d
}

// parse checks a document by the schema that it names, and sets its ids.
func (d *Document) parse(data jsontext.Value, tree any) (err error) {
	switch schemas.Name(d.SchemaVersion) {
	case schemas.ExecutionHandoff:
		var h *handoff.Handoff
		if h, err = handoff.ParseTree(tree); err == nil {
			d.IDs = map[string]string{"handoffId": h.HandoffID, "proposalId": h.ProposalID, "townId": h.Proposal.TownID}
		}
	case schemas.ExecutionResult:
		var r *handoff.Result
		if r, err = handoff.ParseResult(data, schemas.Limits{}); err == nil {
			d.IDs = map[string]string{"resultId": r.ResultID, "handoffId": r.HandoffID, "status": string(r.Status)}
		}
	case schemas.ExecutionResult1:
		var r *handoff.Result1
		if r, err = handoff.ParseResult1(data, schemas.Limits{}); err == nil {
			d.IDs = map[string]string{"executionId": r.ExecutionID, "handoffId": r.HandoffID, "status": string(r.Status)}
		}
	case schemas.Snapshot:
		var s town.State
		if s, err = town.ParseTree(tree); err == nil {
			d.IDs = map[string]string{"townId": s.Snapshot.TownID, "snapshotHash": s.Hash}
		}
	default:
		err = schemas.Invalid("", schemas.Violation{Path: schemas.Pointer("schemaVersion"), Message: fmt.Sprintf(
			"must be %q, %q or %q", schemas.ExecutionHandoff, schemas.ExecutionResult, schemas.Snapshot)})
	}
	return err
}

// Violations returns the violations of a document from the error of its check.
func Violations(err error) []schemas.Violation {
	if found, ok := errors.AsType[*schemas.ValidationError](err); ok {
		return found.Violations
	}
	return []schemas.Violation{{Message: phrase.Sentence(err)}}
}
