package schemas

import (
	"fmt"
	"slices"
)

// Members gathers the violations that code finds in a payload, or in a configuration file. A message
// about a file must not quote a value, which may be a secret.
type Members struct {
	// Schema names the payload, or the kind of file, in the error.
	Schema Name
	found  []Violation
}

// Add adds a violation.
func (m *Members) Add(path, format string, args ...any) {
	m.found = append(m.found, Violation{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Err returns the first 50 violations as a *ValidationError, or nil if there are none.
func (m *Members) Err() error {
	if len(m.found) == 0 {
		return nil
	}
	slices.SortFunc(m.found, Violation.compare)
	return Invalid(m.Schema, m.found[:min(len(m.found), maxViolations)]...)
}
