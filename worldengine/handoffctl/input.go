package handoffctl

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

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
)

// The largest files that are read.
const (
	maxFixtures = 1 << 30
	maxDocument = 64 << 20
)

// read reads a file of fixtures or documents that the command line names, - for standard input.
func (a *app) read(name string) ([]byte, error) { return a.readUpTo(name, maxFixtures) }

func (a *app) readUpTo(name string, limit int64) ([]byte, error) {
	in := a.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, usagef("%v", err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, usagef("%v", err)
	}
	if int64(len(data)) > limit {
		return nil, usagef("%s has more than %d MiB", name, limit>>20)
	}
	return data, nil
}

// readDocument reads the object in a file of the command line; wanted names its kind.
func (a *app) readDocument(name, wanted string) (jsontext.Value, error) {
	data, err := a.readUpTo(name, maxDocument)
	if err != nil {
		return nil, err
	}
	elements, many, err := elementsOf(data)
	switch {
	case err != nil:
		return nil, usagef("%s is not JSON: %s", name, sentence(err))
	case many || elements[0].Kind() != '{':
		return nil, usagef("%s is not one object, and a %s is meant", name, wanted)
	}
	return elements[0], nil
}

// byteOrderMark stands at the beginning of files that some editors write.
var byteOrderMark = []byte("\xef\xbb\xbf")

// lenient accepts JSON that the server refuses: a tester may want to send it.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// elementsOf returns the values in a text: the elements of an array, or one value after another.
// many is set for an array, and for several values.
func elementsOf(data []byte) (elements []jsontext.Value, many bool, err error) {
	if bytes.HasPrefix(data, byteOrderMark) {
		return nil, false,
			errors.New("it begins with a byte order mark (BOM); save it as UTF-8 without one")
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(data), lenient)
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
	err = json.Unmarshal(elements[0], &list, lenient)
	return list, true, err
}

// fileEndings are the endings of the file names that are read from a directory.
var fileEndings = []string{".json", ".jsonl", ".ndjson"}

// filesIn returns the files among paths, and the JSON files of the directories among them, except
// hidden files and directories. Each file comes once.
func filesIn(paths []string) ([]string, error) {
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
			return nil, usagef("%v", err)
		}
		if !found {
			return nil, usagef("%s has no %s", path, "*"+strings.Join(fileEndings, ", *"))
		}
	}
	return files, nil
}

// wrapped has the documents in an object that is no document itself, such as a fixture, a reply of
// town get, or an answer of send.
type wrapped struct {
	SchemaVersion jsontext.Value `json:"schemaVersion"`
	Name          jsontext.Value `json:"name"`
	Handoff       jsontext.Value `json:"handoff"`
	Snapshot      jsontext.Value `json:"snapshot"`
	Result        jsontext.Value `json:"result"`
	Expect        jsontext.Value `json:"expect"`
}

// unwrap returns the documents in an object; none if the object has a schemaVersion, so that it is
// a document itself.
func unwrap(data []byte) (in wrapped) {
	if json.Unmarshal(data, &in, lenient) != nil || in.SchemaVersion != nil {
		return wrapped{}
	}
	return in
}

// snapshotIn returns the snapshot in a reply of town.get, and anything else as it is.
func snapshotIn(data []byte) jsontext.Value {
	if in := unwrap(data); in.Snapshot != nil {
		return in.Snapshot
	}
	return data
}

// readTown reads a file with a snapshot.v1.
func (a *app) readTown(name string) (town.State, error) {
	data, err := a.readDocument(name, "snapshot.v1")
	if err != nil {
		return town.State{}, err
	}
	state, err := town.Parse(snapshotIn(data), schemas.Limits{})
	if err != nil {
		return town.State{}, invalid(name, err)
	}
	return state, nil
}

// outputFile is the name of a file that a command writes at its end; "" for none.
type outputFile string

// Validate returns an error if the file cannot be written, before the command does its work.
func (f outputFile) Validate() error {
	if f == "" {
		return nil
	}
	info, err := os.Stat(string(f))
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a directory", f)
	case errors.Is(err, os.ErrNotExist):
		_, err = os.Stat(filepath.Dir(string(f)))
	}
	return err
}

func (f outputFile) write(data []byte) error {
	if err := os.WriteFile(string(f), data, 0o666); err != nil {
		return usagef("%v", err)
	}
	return nil
}
