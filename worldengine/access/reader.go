package access

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"worldengine/schemas"
)

// reader reads the members of a decoded access file and gathers what is wrong with it. Its methods
// return zero values for what is missing or wrong. What it says never quotes a value.
type reader struct {
	dir    string
	lookup func(string) (string, bool)
	found  []schemas.Violation
}

func (r *reader) add(path, format string, args ...any) {
	r.found = append(r.found, schemas.Violation{Path: path, Message: fmt.Sprintf(format, args...)})
}

// err returns what was found as a *schemas.ValidationError, or nil.
func (r *reader) err() error {
	if len(r.found) == 0 {
		return nil
	}
	slices.SortFunc(r.found, func(a, b schemas.Violation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return schemas.Invalid(ConfigName, r.found...)
}

// object reads v, which has only members that are named.
func (r *reader) object(v any, path string, allowed ...string) map[string]any {
	o, ok := v.(map[string]any)
	if !ok {
		r.add(path, "must be an object")
		return nil
	}
	for name := range o {
		switch {
		case slices.Contains(allowed, name):
		case name == "password":
			r.add(path+schemas.Pointer(name),
				"is not allowed here: give passwordHash, passwordEnv or passwordFile")
		default:
			r.add(path+schemas.Pointer(name), "is not allowed here")
		}
	}
	return o
}

// text reads the non-empty string that o has under name.
func (r *reader) text(o map[string]any, path, name string, required bool) string {
	v, ok := o[name]
	if !ok {
		if required && o != nil {
			r.add(path+schemas.Pointer(name), "is required")
		}
		return ""
	}
	text, _ := v.(string)
	if text == "" {
		r.add(path+schemas.Pointer(name), "must be a non-empty string")
	}
	return text
}

// texts reads the list of non-empty strings that o may have under name. An empty one is refused: it
// could be taken for "none", and means "all" where it is left out.
func (r *reader) texts(o map[string]any, path, name string) []string {
	v, ok := o[name]
	if !ok {
		return nil
	}
	at := path + schemas.Pointer(name)
	list, _ := v.([]any)
	if len(list) == 0 {
		r.add(at, "must be a list of at least one text; leave it out for all")
	}
	texts := make([]string, len(list))
	for i, element := range list {
		if texts[i], _ = element.(string); texts[i] == "" {
			r.add(at+schemas.Pointer(i), "must be a non-empty string")
		}
	}
	return texts
}

// path returns a file as seen from the directory of the access file.
func (r *reader) path(file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(r.dir, file)
}
