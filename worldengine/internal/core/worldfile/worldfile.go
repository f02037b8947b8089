// Package worldfile reads the file that a new world gets its towns from: a JSON array whose
// elements are each a snapshot.v1, or {"snapshot": a snapshot.v1, "apply": the town's binding,
// "approval": the types of proposals that need a person's approval}.
package worldfile

import (
	"errors"
	"fmt"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/town"
)

// MaxBytes bounds a world file: some 30,000 towns.
const MaxBytes = 64 << 20

// Town is one element of a world file.
type Town struct {
	State   town.State
	Binding apply.Binding // "" if the file has none
	// Approval has the types of proposals that need a person's approval; nil if the file has none.
	Approval *approval.Policy
}

// Parse reads a world file. mayBind refuses a binding that no town may have, with an error of a
// town-put-request.v1. The error is a *schemas.ValidationError with the JSON paths of all violations,
// or another one of mayBind as it is.
func Parse(file []byte, mayBind func(apply.Binding) error) ([]Town, error) {
	tree, err := schemas.Decode(file, schemas.Limits{Bytes: MaxBytes})
	if err != nil {
		return nil, err
	}
	list, ok := tree.([]any)
	if !ok {
		return nil,
			schemas.Invalid("", schemas.Violation{Message: "must be an array of snapshot.v1"})
	}
	var towns []Town
	var violations []schemas.Violation
	first := map[string]int{}
	for i, element := range list {
		t, err := parseTown(element, mayBind)
		if err != nil {
			var invalid *schemas.ValidationError
			if !errors.As(schemas.Nest(schemas.Snapshot, err, i), &invalid) {
				return nil, err
			}
			violations = append(violations, invalid.Violations...)
			continue
		}
		id := t.State.Snapshot.TownID
		if j, ok := first[id]; ok {
			violations = append(violations, schemas.Violation{
				Path:    idPath(i, element),
				Message: fmt.Sprintf("must be unique, but %s is the same town", schemas.Pointer(j)),
			})
		}
		first[id] = i
		towns = append(towns, t)
	}
	if len(violations) > 0 {
		return nil, schemas.Invalid(schemas.Snapshot, violations...)
	}
	return towns, nil
}

// idPath returns the path of the town's id in element i of a world file.
func idPath(i int, element any) string {
	members, _ := element.(map[string]any)
	if _, bound := members["snapshot"]; bound {
		return schemas.Pointer(i, "snapshot", "townId")
	}
	return schemas.Pointer(i, "townId")
}

// parseTown reads an element of a world file: a snapshot, or a request of town.put.
func parseTown(element any, mayBind func(apply.Binding) error) (Town, error) {
	members, _ := element.(map[string]any)
	if _, bound := members["snapshot"]; !bound {
		state, err := town.ParseTree(element)
		return Town{State: state}, err
	}
	if err := schemas.Validate(schemas.TownPutRequest, element); err != nil {
		return Town{}, err
	}
	state, err := town.ParseTree(members["snapshot"])
	if err != nil {
		return Town{}, schemas.Nest(schemas.Snapshot, err, "snapshot")
	}
	t := Town{State: state, Approval: approval.ParseTree(members["approval"])}
	if binding, ok := members["apply"].(string); ok {
		t.Binding = apply.Binding(binding)
		err = mayBind(t.Binding)
	}
	return t, err
}
