package approvals

import (
	"maps"
	"slices"

	"worldengine/handoff"
	"worldengine/schemas"

	"github.com/go-json-experiment/json/jsontext"
)

// Change is a value of a snapshot that is another one after a command.
type Change struct {
	// Path is where it stands, a JSON Pointer.
	Path string `json:"path"`
	// From and To are the values before and after; nil where there is none.
	From jsontext.Value `json:"from,omitzero"`
	To   jsontext.Value `json:"to,omitzero"`
}

// Changes returns what differs between two JSON texts, in the order of the paths' members. A list
// that gets longer or shorter differs as a whole.
func Changes(before, after []byte) ([]Change, error) {
	from, err := schemas.Decode(before, schemas.Limits{Bytes: len(before) + 1})
	if err != nil {
		return nil, err
	}
	to, err := schemas.Decode(after, schemas.Limits{Bytes: len(after) + 1})
	if err != nil {
		return nil, err
	}
	return compare(nil, nil, from, to), nil
}

func compare(found []Change, path []any, from, to any) []Change {
	switch was := from.(type) {
	case map[string]any:
		if is, ok := to.(map[string]any); ok {
			return compareObjects(found, path, was, is)
		}
	case []any:
		if is, ok := to.([]any); ok && len(is) == len(was) {
			for i := range was {
				found = compare(found, append(slices.Clip(path), i), was[i], is[i])
			}
			return found
		}
	}
	was, is := handoff.AppendCanonical(nil, from), handoff.AppendCanonical(nil, to)
	if string(was) == string(is) {
		return found
	}
	return append(found, Change{Path: schemas.Pointer(path...), From: was, To: is})
}

func compareObjects(found []Change, path []any, from, to map[string]any) []Change {
	names := maps.Clone(from)
	maps.Copy(names, to)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := append(slices.Clip(path), name)
		was, had := from[name]
		is, has := to[name]
		switch {
		case had && has:
			found = compare(found, at, was, is)
		case had:
			found = append(found, Change{Path: schemas.Pointer(at...), From: handoff.AppendCanonical(nil, was)})
		default:
			found = append(found, Change{Path: schemas.Pointer(at...), To: handoff.AppendCanonical(nil, is)})
		}
	}
	return found
}
