// Package schemas has the JSON Schemas (draft 2020-12) of every payload on the wire, and reads
// JSON strictly. It is the authority on the shape of a payload. The packages that import it check
// the rest in code, such as that echoes agree or that a hash is right, and report it with Invalid.
//
// A payload is read in two steps, which Parse does in one:
//
//	bytes → Decode → tree → Validate → tree
//
// The tree has map[string]any, []any, string, float64, bool and nil. Every refusal is a
// *ValidationError: a machine code, and the violations with the place of each as a JSON Pointer.
//
// # How a schema is checked
//
// santhosh-tekuri/jsonschema compiles the embedded documents once, at the first use, checks them
// against their meta-schema and resolves their references; nothing is loaded from anywhere else.
// Validate walks the compiled schemas itself, because the library's own validator copies the member
// names of an object for every subschema, and words its errors for authors of schemas. A handoff
// takes 1.6 µs instead of 44; half a million violations, as many as 1 MiB may have, take 4 ms
// instead of 500. Tests compare the two validators, and limit the documents to the keywords that
// Validate knows.
//
// Everything in this package is safe for concurrent use.
package schemas
