package schemas

import (
	"fmt"
	"math"
	"slices"
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

type kindName struct {
	name string
	kind kinds
	text string
}

// kindNames has number before integer, since describe takes the first that fits.
var kindNames = []kindName{
	{"null", kindNull, "null"},
	{"boolean", kindBoolean, "a boolean"},
	{"number", kindNumber, "a number"},
	{"integer", kindInteger, "an integer"},
	{"string", kindString, "a string"},
	{"array", kindArray, "an array"},
	{"object", kindObject, "an object"},
}

// newKinds returns the set of the named types and the words for it, such as "a string or null".
func newKinds(names []string) (set kinds, text string) {
	var texts []string
	for _, name := range names {
		i := slices.IndexFunc(kindNames, func(k kindName) bool { return k.name == name })
		if i < 0 {
			panic("schemas: unknown type " + name)
		}
		set |= kindNames[i].kind
		texts = append(texts, kindNames[i].text)
	}
	return set, strings.Join(texts, " or ")
}

// valueKinds returns the types of v, none for a Go value that Decode does not produce. An integer is a
// number without a fraction, however it was written.
func valueKinds(v any) kinds {
	switch v := v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBoolean
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			return kindNumber | kindInteger
		}
		return kindNumber
	case string:
		return kindString
	case []any:
		return kindArray
	case map[string]any:
		return kindObject
	}
	return 0
}

// has reports whether v is of one of the types.
func (k kinds) has(v any) bool { return k&valueKinds(v) != 0 }

// describe returns the kind of v, which is not one of k.
func (k kinds) describe(v any) string {
	if f, ok := v.(float64); ok && k&kindInteger != 0 {
		return number(f)
	}
	for _, known := range kindNames {
		if known.kind&valueKinds(v) != 0 {
			return known.text
		}
	}
	return fmt.Sprintf("a Go %T", v)
}
