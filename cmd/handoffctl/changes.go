package main

import (
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// changesBetween returns the differences of two states of a town, in the order of the paths. In a
// path the members of a list have their ids.
func changesBetween(before, after *town.Snapshot) []handoff.Difference {
	return append([]handoff.Difference{},
		handoff.Differences(treeOf(before), treeOf(after), false)...)
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
