package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
)

// fixture is one handoff to replay, with what has to be true before and after.
type fixture struct {
	// label says where the fixture comes from: the file, the index within it, the name.
	label string
	// handoff and snapshot are sent as they are; snapshot is nil where the fixture has none.
	handoff, snapshot jsontext.Value
	// town is the handoff's town, "" where it cannot be read.
	town   string
	expect expectation
}

// expectation is what a fixture expects of its answer; what is zero is not looked at.
type expectation struct {
	Status     handoff.Status     `json:"status"`
	ReasonCode handoff.ReasonCode `json:"reasonCode"`
	// Result is a whole result; how it is formatted does not matter.
	Result jsontext.Value `json:"result"`
	// Error is the machine code of the refusal that the handoff is expected to get.
	Error string `json:"error"`
}

// loadFixtures reads the files, and the *.json of the directories in the order of their names.
func loadFixtures(a *app, paths []string) ([]fixture, error) {
	files, err := fixtureFiles(paths)
	if err != nil {
		return nil, err
	}
	var all []fixture
	for _, file := range files {
		data, err := a.read(file)
		if err != nil {
			return nil, err
		}
		found, err := parseFixtures(file, data)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func fixtureFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		if path == "-" {
			files = append(files, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, usagef("%v", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		found, err := filepath.Glob(filepath.Join(globQuoted(path), "*.json"))
		if err != nil {
			return nil, usagef("%s: %v", path, err)
		}
		if len(found) == 0 {
			return nil, usagef("%s has no *.json", path)
		}
		slices.Sort(found)
		files = append(files, found...)
	}
	return files, nil
}

// globQuoted makes a directory's name a pattern that matches only itself.
func globQuoted(path string) string {
	var quoted []byte
	for _, c := range []byte(path) {
		if bytes.IndexByte([]byte(`*?[\`), c) >= 0 {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, c)
	}
	return string(quoted)
}

// parseFixtures reads a file: an array of elements, or one element.
func parseFixtures(file string, data []byte) ([]fixture, error) {
	elements, isArray, err := elementsOf(data)
	if err != nil {
		return nil, usagef("%s is not JSON: %v", file, err)
	}
	fixtures := make([]fixture, 0, len(elements))
	for i, element := range elements {
		label := file
		if isArray {
			label = fmt.Sprintf("%s#%d", file, i)
		}
		f, err := parseFixture(label, element)
		if err != nil {
			return nil, err
		}
		fixtures = append(fixtures, f)
	}
	return fixtures, nil
}

// elementsOf returns the elements of an array, and any other value as the only element.
func elementsOf(data []byte) (elements []jsontext.Value, isArray bool, err error) {
	var whole jsontext.Value
	if err := json.Unmarshal(data, &whole, lenient); err != nil {
		return nil, false, err
	}
	if whole.Kind() != '[' {
		return []jsontext.Value{whole}, false, nil
	}
	err = json.Unmarshal(whole, &elements, lenient)
	return elements, true, err
}

// parseFixture reads an element: {handoff, snapshot?, expect?, name?}, members beyond these being
// ignored, or a handoff by itself.
func parseFixture(label string, element jsontext.Value) (fixture, error) {
	var parts struct {
		Name     string         `json:"name"`
		Handoff  jsontext.Value `json:"handoff"`
		Snapshot jsontext.Value `json:"snapshot"`
		Expect   jsontext.Value `json:"expect"`
	}
	if element.Kind() != '{' {
		return fixture{}, usagef("%s: a fixture is an object, not %s", label, short(element))
	}
	if err := json.Unmarshal(element, &parts, lenient); err != nil {
		return fixture{}, usagef("%s: %v", label, err)
	}
	if parts.Handoff == nil {
		return fixture{label: label, handoff: element, town: townOf(element)}, nil
	}
	f := fixture{label: label, handoff: parts.Handoff, town: townOf(parts.Handoff)}
	if parts.Name != "" {
		f.label += " (" + show(parts.Name) + ")"
	}
	if parts.Snapshot != nil && parts.Snapshot.Kind() != 'n' {
		f.snapshot = parts.Snapshot
	}
	if parts.Expect != nil {
		if err := json.Unmarshal(parts.Expect, &f.expect, json.RejectUnknownMembers(true)); err != nil {
			return fixture{}, usagef("%s: expect: %v", label, err)
		}
	}
	if s := f.expect.Status; s != "" && !slices.Contains(handoff.Statuses(), s) {
		return fixture{}, usagef("%s: expect: there is no status %q", label, s)
	}
	return f, nil
}

// townOf returns the town of a handoff, "" where it has none that can be read.
func townOf(data jsontext.Value) string {
	var h struct {
		Proposal struct {
			TownID string `json:"townId"`
		} `json:"proposal"`
	}
	if err := json.Unmarshal(data, &h, lenient); err != nil {
		return ""
	}
	return h.Proposal.TownID
}
