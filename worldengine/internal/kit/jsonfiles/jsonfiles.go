// Package jsonfiles finds JSON documents: files in directories, values in a file, and documents that are
// members of an object.
package jsonfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrByteOrderMark is the error of a file that begins with a mark, as some editors write it.
var ErrByteOrderMark = errors.New("it begins with a byte order mark (BOM); save it as UTF-8 without one")

// Lenient accepts JSON that the server refuses: a tester may want to send it.
var Lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Split returns the values in a text: the elements of an array, or one value after another.
// many is set for an array, and for several values.
func Split(data []byte) (elements []jsontext.Value, many bool, err error) {
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, false, ErrByteOrderMark
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(data), Lenient)
	value, err := decoder.ReadValue()
	for ; err == nil; value, err = decoder.ReadValue() {
		elements = append(elements, value.Clone())
	}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax):
		return nil, false, fmt.Errorf("%w at byte %d", syntax.Err, syntax.ByteOffset)
	case !errors.Is(err, io.EOF):
		return nil, false, err
	case len(elements) == 0:
		return nil, false, errors.New("it is empty")
	case len(elements) > 1 || elements[0].Kind() != '[':
		return elements, len(elements) > 1, nil
	}
	var list []jsontext.Value
	err = json.Unmarshal(elements[0], &list, Lenient)
	return list, true, err
}

// fileEndings are the endings of the file names that are read from a directory.
var fileEndings = []string{".json", ".jsonl", ".ndjson"}

// Files returns the files among paths, and the JSON files of the directories among them, except
// hidden files and directories. Each file comes once.
func Files(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		if path == "-" {
			files = append(files, path)
			continue
		}
		found, root := false, path
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			root += string(filepath.Separator) // WalkDir follows a link only so
		}
		err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			named := file == path || file == root
			switch {
			case err != nil || entry.IsDir() && named:
				return err
			case !named && strings.HasPrefix(entry.Name(), "."):
				if entry.IsDir() {
					return fs.SkipDir
				}
			case named || !entry.IsDir() && slices.Contains(fileEndings, filepath.Ext(file)):
				if found = true; !slices.Contains(files, file) {
					files = append(files, file)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("%s has no %s", path, "*"+strings.Join(fileEndings, ", *"))
		}
	}
	return files, nil
}

// Members are the documents in an object that is no document itself, such as a fixture, a reply of
// town get, or an answer of send.
type Members struct {
	SchemaVersion jsontext.Value `json:"schemaVersion"`
	Name          jsontext.Value `json:"name"`
	Handoff       jsontext.Value `json:"handoff"`
	Snapshot      jsontext.Value `json:"snapshot"`
	Result        jsontext.Value `json:"result"`
	Expect        jsontext.Value `json:"expect"`
}

// Unwrap returns the documents in an object; none if the object has a schemaVersion, so that it is
// a document itself.
func Unwrap(data []byte) (in Members) {
	if json.Unmarshal(data, &in, Lenient) != nil || in.SchemaVersion != nil {
		return Members{}
	}
	return in
}
