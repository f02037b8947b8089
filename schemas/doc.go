// Package schemas holds the JSON Schemas (draft 2020-12) of every payload that crosses the wire,
// and the strict reading of JSON that comes in front of them. It is the authority on the shape of a
// payload. What a schema cannot say, such as that an echo agrees or that a hash is the right one,
// is checked in code by the packages that import this one; those report it with Invalid.
//
// A payload is read in two steps, which Parse does in one:
//
//	bytes → Decode → tree → Validate → tree
//
// The tree is made of map[string]any, []any, string, float64, bool and nil. Every refusal is a
// *ValidationError: a machine code, and the violations with the place of each as a JSON Pointer.
//
// # How a schema is checked
//
// The documents are embedded and compiled once, at the first use, by santhosh-tekuri/jsonschema,
// which also checks them against their meta-schema and resolves their references; nothing is loaded
// from anywhere else. Validate then walks what it compiled itself, because the validator of that
// library copies the member names of an object for every subschema that is applied to it and words
// its errors for authors of schemas. A handoff takes 1.6 µs instead of 44, half a million
// violations, as many as 1 MiB may have, take 4 ms instead of 500, and a violation names the member
// that it is about. The tests hold the two against each other. The documents use only the keywords
// that the walk knows; the tests hold them to that as well.
//
// Everything in this package is safe for concurrent use.
package schemas
