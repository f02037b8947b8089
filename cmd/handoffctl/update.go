package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
)

// update is a change of a fixture by replay --update.
type update struct {
	Fixture string `json:"fixture"`
	// Difference has a line for each value that the fixture expected, and that it expects now.
	Difference string `json:"difference"`
}

// checkUpdate refuses arguments that conflict with --update.
func (c *replayCommand) checkUpdate(files []string) error {
	switch {
	case !c.Update:
		return nil
	case slices.Contains(files, "-"):
		return usagef("--update writes into the files of the fixtures: name files, not -")
	case c.JUnit != "":
		return usagef("--junit reports differences, and --update accepts them as expected: " +
			"give one of them")
	}
	seen := map[string]bool{}
	for _, file := range files {
		place, err := filepath.EvalSymlinks(file)
		if err == nil {
			place, err = filepath.Abs(place)
		}
		if err == nil && seen[place] {
			err = fmt.Errorf("%s is named twice", file)
		}
		var writable *os.File
		if err == nil {
			writable, err = os.OpenFile(place, os.O_WRONLY, 0)
		}
		if err != nil {
			return usagef("--update: %v", err)
		}
		_ = writable.Close()
		seen[place] = true
	}
	return nil
}

// update shows the difference for each fixture that failed or expects nothing, makes it expect its
// answer, and rewrites its file.
func (a *app) update(fixtures []fixture, done []*replayed) ([]update, error) {
	var all []update
	byFile, changed := map[string][]*fixture{}, map[string]bool{}
	for i := range fixtures {
		f, r := &fixtures[i], done[i]
		byFile[f.file] = append(byFile[f.file], f)
		if r.answered == nil || r.failure == nil && !r.unchecked {
			continue
		}
		wanted := f.Expect.meeting(r.answered)
		u := update{f.label, expectationDifference(&f.Expect, wanted)}
		if err := a.showUpdate(&u); err != nil {
			return nil, err
		}
		f.Expect, r.updated, changed[f.file] = *wanted, true, true
		all = append(all, u)
	}
	for _, file := range slices.Sorted(maps.Keys(changed)) {
		if err := rewrite(file, byFile[file]); err != nil {
			return nil, usagef("--update: %v", err)
		}
	}
	return all, nil
}

// showUpdate shows an update to people; the summary in JSON has it.
func (a *app) showUpdate(u *update) error {
	if a.json() {
		return nil
	}
	return a.printText(func(t table) {
		t.linef("%s expects what was answered:", u.Fixture)
		for line := range strings.Lines(u.Difference) {
			tone := good
			if line[0] == '-' {
				tone = bad
			}
			t.linef("%s", a.coloured(strings.TrimSuffix(line, "\n"), tone))
		}
		t.linef("")
	})
}

// rewrite writes the fixtures of a file into it, unless it has changed since it was read.
func rewrite(file string, fixtures []*fixture) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	elements, _, err := elementsOf(data)
	if err != nil || !slices.EqualFunc(elements, fixtures, func(e jsontext.Value, f *fixture) bool {
		return bytes.Equal(e, f.element)
	}) {
		return usagef("%s has changed since it was read", file)
	}
	all := make([]*fixtureParts, len(fixtures))
	for i, f := range fixtures {
		all[i] = &f.fixtureParts
	}
	text, err := fixtureFile(all, filepath.Ext(file) != ".json")
	if err != nil {
		return err
	}
	return replaceFile(file, text)
}

// replaceFile gives a file another content, all of it or none.
func replaceFile(file string, content []byte) error {
	place, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	info, err := os.Stat(place)
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(place), filepath.Base(place)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name()) // unless it has the file's name by then
	_, err = fresh.Write(content)
	err = errors.Join(err, fresh.Chmod(info.Mode().Perm()), fresh.Sync(), fresh.Close())
	if err != nil {
		return err
	}
	return os.Rename(fresh.Name(), place)
}

// fixtureFile writes fixtures as a file has them: one on each line, in an array unless they are
// JSON Lines.
func fixtureFile(fixtures []*fixtureParts, jsonLines bool) ([]byte, error) {
	lines := make([][]byte, len(fixtures))
	for i, f := range fixtures {
		line, err := json.Marshal(f, lenient, jsontext.PreserveRawStrings(true))
		if err != nil {
			return nil, err
		}
		lines[i] = line
		if i == len(fixtures)-1 {
			lines[i] = append(line, '\n')
		}
	}
	if jsonLines {
		return bytes.Join(lines, []byte("\n")), nil
	}
	return slices.Concat([]byte("[\n"), bytes.Join(lines, []byte(",\n")), []byte("]\n")), nil
}

// meeting returns an expectation that an answer meets. It has the members that e has of a result,
// or if e has none, the members that handoffctl record writes.
func (e *expectation) meeting(answered *expectation) *expectation {
	wanted := *e
	switch {
	case answered.Error != "":
		return &expectation{Error: answered.Error}
	case !e.comparesResult():
		return &expectation{Status: answered.Status, ReasonCode: answered.ReasonCode,
			ResultBytes: answered.ResultBytes}
	}
	wanted.Error = ""
	if e.Status != "" {
		wanted.Status = answered.Status
	}
	if e.ReasonCode != "" {
		wanted.ReasonCode = answered.ReasonCode
	}
	if differences(e.Result, answered.Result) != nil {
		wanted.Result = answered.Result
	}
	if e.ResultBytes != "" {
		wanted.ResultBytes = answered.ResultBytes
	}
	return &wanted
}

// expectationDifference has a line for each value that differs. The bytes of a result are compared
// as JSON, and as text if that shows no difference.
func expectationDifference(was, is *expectation) string {
	found := handoff.Differences(was.tree(true), is.tree(true), false)
	if found == nil {
		found = handoff.Differences(was.tree(false), is.tree(false), false)
	}
	var text strings.Builder
	for _, d := range found {
		if d.Before != nil {
			text.WriteString("- " + d.Path + ": " + string(d.Before) + "\n")
		}
		if d.After != nil {
			text.WriteString("+ " + d.Path + ": " + string(d.After) + "\n")
		}
	}
	return text.String()
}

// tree returns the expectation as a JSON tree. With parse, the bytes of a result are a tree too.
func (e *expectation) tree(parse bool) any {
	data, _ := json.Marshal(e, lenient) // of texts and of JSON that was read
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err != nil {
		return nil // a result that no server gives
	}
	if bytes, err := schemas.Decode([]byte(e.ResultBytes), schemas.Limits{}); parse && err == nil {
		tree.(map[string]any)["resultBytes"] = bytes
	}
	return tree
}
