package schemas

import (
	"fmt"
	"math"
	"strings"
)

// kinds is a set of the types that JSON Schema knows.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBoolean
	kindInteger
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = map[string]struct {
	kind kinds
	text string
}{
	"null":    {kindNull, "null"},
	"boolean": {kindBoolean, "a boolean"},
	"integer": {kindInteger, "an integer"},
	"number":  {kindNumber, "a number"},
	"string":  {kindString, "a string"},
	"array":   {kindArray, "an array"},
	"object":  {kindObject, "an object"},
}

// newKinds returns the set of the named types and the words for it, such as "a string or null".
func newKinds(names []string) (set kinds, text string) {
	var texts []string
	for _, name := range names {
		k, ok := kindNames[name]
		if !ok {
			panic("schemas: unknown type " + name)
		}
		set |= k.kind
		texts = append(texts, k.text)
	}
	return set, strings.Join(texts, " or ")
}

// has reports whether v is of one of the types. An integer is a number without a fraction, however
// it was written.
func (k kinds) has(v any) bool {
	switch v := v.(type) {
	case nil:
		return k&kindNull != 0
	case bool:
		return k&kindBoolean != 0
	case float64:
		return k&kindNumber != 0 || k&kindInteger != 0 && v == math.Trunc(v) && !math.IsInf(v, 0)
	case string:
		return k&kindString != 0
	case []any:
		return k&kindArray != 0
	case map[string]any:
		return k&kindObject != 0
	}
	return false
}

// describe returns the kind of v, which is not one of k.
func (k kinds) describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case float64:
		if k&kindInteger != 0 {
			return number(v)
		}
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("a Go %T", v)
}
