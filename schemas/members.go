package schemas

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Members gathers the violations of the members of a configuration file. Messages never quote a
// value, which may be a secret.
type Members struct {
	// File names the kind of file in the error.
	File  Name
	found []Violation
}

// Add adds a violation.
func (m *Members) Add(path, format string, args ...any) {
	m.found = append(m.found, Violation{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Err returns the violations as a *ValidationError, or nil if there are none.
func (m *Members) Err() error {
	if len(m.found) == 0 {
		return nil
	}
	slices.SortFunc(m.found, func(a, b Violation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return Invalid(m.File, m.found...)
}
