package schemas

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Members reads the members of a decoded configuration file and gathers violations. Its methods
// return zero values for missing and wrong members. Messages never quote a value, which may be a
// secret.
type Members struct {
	// File names the kind of file in the error.
	File Name
	// Passwords are the members that are allowed instead of "password".
	Passwords string
	found     []Violation
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

// Object reads v, an object with only the allowed members; without names it allows all.
func (m *Members) Object(v any, path string, allowed ...string) map[string]any {
	o, ok := v.(map[string]any)
	if !ok {
		m.Add(path, "must be an object")
		return nil
	}
	for name := range o {
		switch {
		case len(allowed) == 0 || slices.Contains(allowed, name):
		case name == "password":
			m.Add(path+Pointer(name), "is not allowed here: give %s", m.Passwords)
		default:
			m.Add(path+Pointer(name), "is not allowed here")
		}
	}
	return o
}

// Text reads the non-empty string that o has under name.
func (m *Members) Text(o map[string]any, path, name string, required bool) string {
	v, ok := o[name]
	if !ok {
		m.Absent(o, path, name, required)
		return ""
	}
	text, _ := v.(string)
	if text == "" {
		m.Add(path+Pointer(name), "must be a non-empty string")
	}
	return text
}

// Absent adds a violation for a required member that the object o lacks.
func (m *Members) Absent(o map[string]any, path, name string, required bool) {
	if required && o != nil {
		m.Add(path+Pointer(name), "is required")
	}
}
