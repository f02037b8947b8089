// Package schemas has the JSON Schemas (draft 2020-12) of every payload on the wire, and reads JSON strictly: duplicate
// members, invalid UTF-8 and trailing text are errors. Import it to validate payloads that you make or receive, or to
// publish their schemas. It checks the shape alone; package handoff also checks that copies agree and hashes are right.
// Everything is safe for concurrent use.
//
// A payload is read in two steps, which Parse does in one:
//
//	bytes → Decode → tree → Validate → tree
//
// The tree has map[string]any, []any, string, float64, bool and nil. Every refusal is a
// *ValidationError: a machine code, and the violations with the place of each as a JSON Pointer.
package schemas
