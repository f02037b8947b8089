package access

import (
	"path/filepath"

	"worldengine/schemas"
)

// reader reads a decoded access file.
type reader struct {
	schemas.Members
	dir    string
	lookup func(string) (string, bool)
}

// texts reads the list of non-empty strings that o may have under name. An empty list is refused:
// it could be taken for "none", although a list that is left out means "all".
func (r *reader) texts(o map[string]any, path, name string) []string {
	v, ok := o[name]
	if !ok {
		return nil
	}
	at := path + schemas.Pointer(name)
	list, _ := v.([]any)
	if len(list) == 0 {
		r.Add(at, "must be a list of at least one text; leave it out for all")
	}
	texts := make([]string, len(list))
	for i, element := range list {
		if texts[i], _ = element.(string); texts[i] == "" {
			r.Add(at+schemas.Pointer(i), "must be a non-empty string")
		}
	}
	return texts
}

// path returns a file relative to the directory of the access file.
func (r *reader) path(file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(r.dir, file)
}
