package rcon

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"worldengine/schemas"
)

// shape reads the members of a decoded configuration and gathers what is wrong with it. Its methods
// return zero values for what is missing or wrong.
type shape struct{ found []schemas.Violation }

func (s *shape) add(path, format string, args ...any) {
	s.found = append(s.found, schemas.Violation{Path: path, Message: fmt.Sprintf(format, args...)})
}

// err returns what was found as a *schemas.ValidationError, or nil.
func (s *shape) err() error {
	if len(s.found) == 0 {
		return nil
	}
	slices.SortFunc(s.found, func(a, b schemas.Violation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return schemas.Invalid(ConfigName, s.found...)
}

// object reads v, which has only members that are named; no names allow any.
func (s *shape) object(v any, path string, allowed ...string) map[string]any {
	o, ok := v.(map[string]any)
	if !ok {
		s.add(path, "must be an object")
		return nil
	}
	for name := range maps.Keys(o) {
		switch {
		case len(allowed) == 0 || slices.Contains(allowed, name):
		case name == "password":
			s.add(path+schemas.Pointer(name),
				"is not allowed here: give passwordFile or passwordEnv")
		default:
			s.add(path+schemas.Pointer(name), "is not allowed here")
		}
	}
	return o
}

// member reads the object that o has under name.
func (s *shape) member(o map[string]any, path, name string, required bool) map[string]any {
	v, ok := o[name]
	if !ok {
		s.absent(o, path, name, required)
		return nil
	}
	return s.object(v, path+schemas.Pointer(name))
}

// text reads the non-empty string that o has under name.
func (s *shape) text(o map[string]any, path, name string, required bool) string {
	v, ok := o[name]
	if !ok {
		s.absent(o, path, name, required)
		return ""
	}
	text, _ := v.(string)
	if text == "" {
		s.add(path+schemas.Pointer(name), "must be a non-empty string")
	}
	return text
}

// integer reads the number in 1..most that o may have under name.
func (s *shape) integer(o map[string]any, path, name string, most int64) int64 {
	v, ok := o[name]
	if !ok {
		return 0
	}
	f, ok := v.(float64)
	if !ok || f != math.Trunc(f) || f < 1 || f > float64(most) {
		s.add(path+schemas.Pointer(name), "must be an integer in 1..%d", most)
		return 0
	}
	return int64(f)
}

// templates reads a list of commands.
func (s *shape) templates(v any, path string) []Template {
	list, ok := v.([]any)
	if !ok {
		s.add(path, "must be a list of commands")
		return nil
	}
	templates := make([]Template, len(list))
	for i, element := range list {
		at := path + schemas.Pointer(i)
		o := s.object(element, at, "run", "expect")
		templates[i] = Template{Run: s.text(o, at, "run", true),
			Expect: s.text(o, at, "expect", false)}
	}
	return templates
}

// absent notes a required member that o, unless it is no object at all, does not have.
func (s *shape) absent(o map[string]any, path, name string, required bool) {
	if required && o != nil {
		s.add(path+schemas.Pointer(name), "is required")
	}
}
