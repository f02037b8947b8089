package main

import (
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// change is one value that differs between two trees. Path is a JSON Pointer; between two states of
// a town the members of a list stand in it by their ids.
type change struct {
	Path string `json:"path"`
	// Before and After are nil where there is no such value.
	Before jsontext.Value `json:"before,omitzero"`
	After  jsontext.Value `json:"after,omitzero"`
}

// changesBetween returns what differs between two states of a town, in the order of the paths.
func changesBetween(before, after *town.Snapshot) []change {
	return changed(treeOf(before), treeOf(after))
}

// treeOf returns a snapshot as a tree of objects: its lists are objects by id.
func treeOf(s *town.Snapshot) any {
	tree, err := schemas.Decode(town.NewState(s).Canonical, schemas.Limits{})
	if err != nil {
		return nil // what was read before can be read again
	}
	root := tree.(map[string]any)
	for name, value := range root {
		if list, ok := value.([]any); ok {
			root[name] = byID(list)
		}
	}
	return root
}

func byID(list []any) map[string]any {
	object := make(map[string]any, len(list))
	for _, item := range list {
		if member, ok := item.(map[string]any); ok {
			id, _ := member["id"].(string)
			object[id] = member
		}
	}
	return object
}

// changed returns where two trees differ, in the order of their paths.
func changed(before, after any) []change {
	found := []change{}
	for _, d := range handoff.Differences(before, after, false) {
		found = append(found, change(d))
	}
	return found
}
