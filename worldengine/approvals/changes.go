package approvals

import (
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
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
	var found []Change
	for _, d := range handoff.Differences(from, to, true) {
		found = append(found, Change{Path: d.Path, From: d.Before, To: d.After})
	}
	return found, nil
}
