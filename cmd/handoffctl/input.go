package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// Files that are larger than this are not read.
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

// readDocument reads one JSON value that the command line names. what says which one is meant.
func (a *app) readDocument(name, what string) (jsontext.Value, error) {
	data, err := a.readUpTo(name, maxDocument)
	if err != nil {
		return nil, err
	}
	elements, many, err := elementsOf(data)
	switch {
	case err != nil:
		return nil, usagef("%s is not JSON: %s", name, sentence(err))
	case many:
		return nil, usagef("%s has a list, and one %s is meant: handoffd --world-file takes a list of towns", name, what)
	case elements[0].Kind() != '{':
		return nil, usagef("%s is not an object, and a %s is meant", name, what)
	}
	if kind := kindOf(elements[0]); kind != "" {
		return nil, usagef("%s is %s, and a %s is meant", name, kind, what)
	}
	return elements[0], nil
}

// kindOf names what a document is that is neither a snapshot nor made of one, "" for any other.
func kindOf(document jsontext.Value) string {
	var parts struct {
		SchemaVersion jsontext.Value `json:"schemaVersion"`
		Handoff       jsontext.Value `json:"handoff"`
		Snapshot      jsontext.Value `json:"snapshot"`
		Result        jsontext.Value `json:"result"`
	}
	if json.Unmarshal(document, &parts, lenient) != nil {
		return ""
	}
	var version string
	_ = json.Unmarshal(parts.SchemaVersion, &version) // a number is that of a revision
	switch {
	case version == string(schemas.ExecutionHandoff), version == string(schemas.ExecutionResult):
		return "an " + version
	case parts.SchemaVersion != nil || parts.Snapshot != nil:
		return ""
	case parts.Handoff != nil:
		return "a fixture without a snapshot"
	case parts.Result != nil:
		return "an answer of send"
	}
	return ""
}

// checkOutput says what is wrong with a file that a command is going to write, before it does its
// work.
func checkOutput(flag, name string) error {
	if name == "" {
		return nil
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return usagef("%s: %s is a directory", flag, name)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return usagef("%s: %v", flag, err)
	}
	if info, err = os.Stat(filepath.Dir(name)); err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", filepath.Dir(name))
	}
	if err != nil {
		return usagef("%s: %v", flag, err)
	}
	return nil
}
