package approvals

import (
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/messages"
)

// Bounds of what a row says of the changes that are expected.
const (
	// maxValue is the largest value of a change that is shown, in bytes of JSON.
	maxValue = 2 << 10
	// maxChanges is how many changes are shown, and maxChangesBytes how many bytes they have.
	maxChanges      = 64
	maxChangesBytes = 64 << 10
)

// Change is a value of a snapshot that is another one after a command. One larger than maxValue is
// left out.
type Change = messages.ExpectedChange

// Changes returns what differs between a JSON tree, as schemas.Decode returns it, and a JSON text,
// in the order of the paths' members, and how many changes more there are. A list that gets longer
// or shorter differs as a whole.
func Changes(before any, after []byte) (found []Change, more int, err error) {
	to, err := schemas.Decode(after, schemas.Limits{Bytes: len(after) + 1})
	if err != nil {
		return nil, 0, err
	}
	room := maxChangesBytes
	for _, d := range handoff.Differences(before, to, true) {
		c := Change{Path: d.Path}
		c.From, c.FromBytes = shown(d.Before)
		c.To, c.ToBytes = shown(d.After)
		room -= len(c.Path) + len(c.From) + len(c.To)
		if len(found) == maxChanges || room < 0 {
			more++
			continue
		}
		found = append(found, c)
	}
	return found, more, nil
}

// shown returns a value, or the size of one that is too large.
func shown(value jsontext.Value) (jsontext.Value, int) {
	if len(value) > maxValue {
		return nil, len(value)
	}
	return value, 0
}
