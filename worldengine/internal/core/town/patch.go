package town

import (
	"maps"

	"worldengine/schemas"
)

// Patch returns the state that a JSON Merge Patch (RFC 7396) makes of s, in canonical order. patch
// is a tree of schemas.Decode. Its null removes a member; mission and latestNetherEvent, which a
// snapshot always has, become null instead. The error is a *schemas.ValidationError with the paths
// of the patched snapshot, which must be a snapshot.v1 of the same town. s stays unchanged.
func (s State) Patch(patch any) (State, error) {
	tree, err := schemas.Decode(s.Canonical, schemas.Limits{Bytes: len(s.Canonical) + 1})
	if err != nil {
		return State{}, err
	}
	result := mergePatch(tree, patch)
	if members, ok := result.(map[string]any); ok {
		for _, nullable := range []string{"mission", "latestNetherEvent"} {
			if _, there := members[nullable]; !there {
				members[nullable] = nil
			}
		}
	}
	state, err := ParseTree(result)
	if err != nil {
		return State{}, err
	}
	if state.Snapshot.TownID != s.Snapshot.TownID {
		return State{}, schemas.Invalid(schemas.Snapshot, schemas.Violation{
			Path: "/townId", Message: "must stay: a town does not change its id",
		})
	}
	return state, nil
}

// mergePatch is MergePatch of RFC 7396, section 2, on trees that stay as they are.
func mergePatch(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	members, _ := target.(map[string]any)
	result := maps.Clone(members)
	if result == nil {
		result = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = mergePatch(result[name], value)
		}
	}
	return result
}
