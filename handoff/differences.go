package handoff

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// Difference is a place at which two JSON trees differ.
type Difference struct {
	// Path is the place of the value, a JSON Pointer.
	Path string `json:"path"`
	// Before and After are the values in canonical form; nil for a missing value.
	Before jsontext.Value `json:"before,omitzero"`
	After  jsontext.Value `json:"after,omitzero"`
}

// Differences returns the differences of two trees from schemas.Decode: objects member by member,
// in the order of the names. With items, lists of equal length are compared item by item; other
// lists are one value each.
func Differences(before, after any, items bool) []Difference {
	c := comparison{items: items}
	c.compare("", before, after)
	return c.found
}

type comparison struct {
	items bool
	found []Difference
}

func (c *comparison) compare(path string, before, after any) {
	switch was := before.(type) {
	case map[string]any:
		if is, ok := after.(map[string]any); ok {
			c.compareObjects(path, was, is)
			return
		}
	case []any:
		if is, ok := after.([]any); ok && c.items && len(is) == len(was) {
			for i := range was {
				c.compare(path+schemas.Pointer(i), was[i], is[i])
			}
			return
		}
	}
	if was, is := AppendCanonical(nil, before), AppendCanonical(nil,
		after); string(was) != string(is) {
		c.found = append(c.found, Difference{path, was, is})
	}
}

func (c *comparison) compareObjects(path string, before, after map[string]any) {
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		below := path + schemas.Pointer(name)
		was, had := before[name]
		is, has := after[name]
		switch {
		case !had:
			c.found = append(c.found, Difference{Path: below, After: AppendCanonical(nil, is)})
		case !has:
			c.found = append(c.found, Difference{Path: below, Before: AppendCanonical(nil, was)})
		default:
			c.compare(below, was, is)
		}
	}
}
