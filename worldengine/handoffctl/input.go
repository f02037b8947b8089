package handoffctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/jsonfiles"
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
	elements, many, err := jsonfiles.Split(data)
	switch {
	case err != nil:
		return nil, usagef("%s is not JSON: %s", name, sentence(err))
	case many || elements[0].Kind() != '{':
		return nil, usagef("%s is not one object, and a %s is meant", name, wanted)
	}
	return elements[0], nil
}

// snapshotIn returns the snapshot in a reply of town.get, and anything else as it is.
func snapshotIn(data []byte) jsontext.Value {
	if in := jsonfiles.Unwrap(data); in.Snapshot != nil {
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
