package rcon

import (
	"math"

	"worldengine/schemas"
)

// shape reads a decoded configuration.
type shape struct{ schemas.Members }

func newShape() shape {
	return shape{schemas.Members{File: ConfigName, Passwords: "passwordFile or passwordEnv"}}
}

// member reads the object that o has under name.
func (s *shape) member(o map[string]any, path, name string, required bool) map[string]any {
	v, ok := o[name]
	if !ok {
		s.Absent(o, path, name, required)
		return nil
	}
	return s.Object(v, path+schemas.Pointer(name))
}

// integer reads the number in 1..most that o may have under name.
func (s *shape) integer(o map[string]any, path, name string, most int64) int64 {
	v, ok := o[name]
	if !ok {
		return 0
	}
	f, ok := v.(float64)
	if !ok || f != math.Trunc(f) || f < 1 || f > float64(most) {
		s.Add(path+schemas.Pointer(name), "must be an integer in 1..%d", most)
		return 0
	}
	return int64(f)
}

// templates reads a list of commands.
func (s *shape) templates(v any, path string) []Template {
	list, ok := v.([]any)
	if !ok {
		s.Add(path, "must be a list of commands")
		return nil
	}
	templates := make([]Template, len(list))
	for i, element := range list {
		at := path + schemas.Pointer(i)
		o := s.Object(element, at, "run", "expect")
		templates[i] = Template{Run: s.Text(o, at, "run", true),
			Expect: s.Text(o, at, "expect", false)}
	}
	return templates
}
