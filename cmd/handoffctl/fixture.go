package main

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

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/messages"
)

// fixture is one handoff to replay, with what has to be true before and after.
type fixture struct {
	// file and label say where the fixture comes from: the file; the index within it, the name.
	file, label string
	// nth counts the fixtures of the file from 0; element is what stands there.
	nth     int
	element jsontext.Value
	// parts is the fixture as --update writes it.
	parts fixtureParts
	// handoff and snapshot are sent as they are; snapshot is nil where the fixture has none.
	handoff, snapshot jsontext.Value
	// game is the answer of the town's game, and approval a person's decision; nil for none.
	game     *apply.Answer
	approval *decisionOf
	// town is the handoff's town, "" where it cannot be read.
	town   string
	expect expectation
}

// expectation is what a fixture expects of its answer; what is zero is not looked at.
type expectation struct {
	Status     handoff.Status     `json:"status,omitzero"`
	ReasonCode handoff.ReasonCode `json:"reasonCode,omitzero"`
	// Result is a whole result; how it is formatted does not matter.
	Result jsontext.Value `json:"result,omitzero"`
	// ResultBytes are the bytes of a whole result.
	ResultBytes string `json:"resultBytes,omitzero"`
	// Error is the machine code of the refusal that the handoff is expected to get.
	Error string `json:"error,omitzero"`
}

// compares reports whether there is anything to compare an answer with.
func (e *expectation) compares() bool {
	return e.Status != "" || e.ReasonCode != "" || e.Result != nil ||
		e.ResultBytes != "" || e.Error != ""
}

// fixtureEndings are how the names of the files end that are read of a directory.
var fixtureEndings = []string{".json", ".jsonl", ".ndjson"}

// loadFixtures reads the files, and those of the directories and their subdirectories in the order
// of their names. There is one fixture at least.
func loadFixtures(a *app, paths []string) ([]fixture, error) {
	files, err := filesIn(paths)
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
	if len(all) == 0 {
		return nil, usagef("there is no fixture in %s", strings.Join(paths, ", "))
	}
	return all, nil
}

// filesIn returns the files among paths, and the JSON files of the directories among them.
func filesIn(paths []string) ([]string, error) {
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
		before := len(files)
		err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && slices.Contains(fixtureEndings, filepath.Ext(file)) {
				files = append(files, file)
			}
			return err
		})
		if err != nil {
			return nil, usagef("%v", err)
		}
		if len(files) == before {
			return nil, usagef("%s has no %s", path, "*"+strings.Join(fixtureEndings, ", *"))
		}
	}
	return files, nil
}

// parseFixtures reads a file: an array of elements, or one element after another, as JSON Lines
// have them.
func parseFixtures(file string, data []byte) ([]fixture, error) {
	elements, many, err := elementsOf(data)
	if err != nil {
		return nil, usagef("%s is not JSON: %s", file, sentence(err))
	}
	fixtures := make([]fixture, 0, len(elements))
	for i, element := range elements {
		label := file
		if many {
			label = fmt.Sprintf("%s#%d", file, i)
		}
		f, err := parseFixture(label, element)
		if err != nil {
			return nil, err
		}
		f.file, f.nth, f.element = file, i, element
		fixtures = append(fixtures, f)
	}
	return fixtures, nil
}

// byteOrderMark stands at the beginning of files that some editors write.
var byteOrderMark = []byte("\xef\xbb\xbf")

// elementsOf returns the values in a text: the elements of an array, or one value after another.
// many reports whether there may be more than one.
func elementsOf(data []byte) (elements []jsontext.Value, many bool, err error) {
	if bytes.HasPrefix(data, byteOrderMark) {
		return nil, false,
			errors.New("it begins with a byte order mark (BOM); save it as UTF-8 without one")
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(data), lenient)
	for {
		value, err := decoder.ReadValue()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, syntaxError(err)
		}
		elements = append(elements, value.Clone())
	}
	switch {
	case len(elements) == 0:
		return nil, false, errors.New("it is empty")
	case len(elements) == 1 && elements[0].Kind() == '[':
		whole := elements[0]
		elements = nil
		return elements, true, json.Unmarshal(whole, &elements, lenient)
	}
	return elements, len(elements) > 1, nil
}

// syntaxError says what is wrong with a text as JSON, and where.
func syntaxError(err error) error {
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return fmt.Errorf("%w at byte %d", syntactic.Err, syntactic.ByteOffset)
	}
	return err
}

// decisionOf is a person's decision in a fixture. Without one nobody has decided.
type decisionOf struct {
	Decision string `json:"decision,omitzero"` // approve or reject
	ActorID  string `json:"actorId,omitzero"`
	Reason   string `json:"reason,omitzero"`
}

// fixtureParts are the members of a fixture. Those that are read and not used say, in the vectors
// of the agents' library, what a fixture was made of.
type fixtureParts struct {
	Name         string         `json:"name,omitzero"`
	Comment      jsontext.Value `json:"comment,omitzero"`
	SnapshotName jsontext.Value `json:"snapshotName,omitzero"`
	From         jsontext.Value `json:"from,omitzero"`
	Outcome      jsontext.Value `json:"outcome,omitzero"`
	Result       jsontext.Value `json:"result,omitzero"`
	Handoff      jsontext.Value `json:"handoff"`
	Snapshot     jsontext.Value `json:"snapshot,omitzero"`
	Game         *apply.Answer  `json:"game,omitzero"`
	Approval     *decisionOf    `json:"approval,omitzero"`
	Expect       *expectation   `json:"expect,omitzero"`
}

// parseFixture reads an element: {handoff, snapshot?, expect?, name?, comment?}, or a handoff by
// itself.
func parseFixture(label string, element jsontext.Value) (fixture, error) {
	if element.Kind() != '{' {
		return fixture{}, usagef("%s: a fixture is an object, not %s", label, short(element))
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(element, &members, lenient); err != nil {
		return fixture{}, usagef("%s: %v", label, err)
	}
	if _, wrapped := members["handoff"]; !wrapped {
		_, isHandoff := members["proposal"] // which may have members beyond the contract's
		for _, member := range []string{"expect", "snapshot"} {
			if _, given := members[member]; given && !isHandoff {
				return fixture{},
					usagef("%s: a fixture with the member %s needs the member handoff",
						label, member)
			}
		}
		return fixture{label: label, handoff: element, town: townOf(element),
			parts: fixtureParts{Handoff: element}}, nil
	}
	var parts fixtureParts
	if err := json.Unmarshal(element, &parts, lenient,
		json.RejectUnknownMembers(true)); err != nil {
		return fixture{}, usagef("%s: %s", label, memberError(err,
			"a fixture has the members name, comment, handoff, snapshot, game, approval and expect, "+
				"and expect has status, reasonCode, result, resultBytes and error"))
	}
	f := fixture{label: label, handoff: parts.Handoff, town: townOf(parts.Handoff), parts: parts,
		game: parts.Game, approval: parts.Approval}
	if parts.Name != "" {
		f.label += " (" + show(parts.Name) + ")"
	}
	if parts.Snapshot != nil && parts.Snapshot.Kind() != 'n' {
		f.snapshot = parts.Snapshot
	}
	if parts.Expect != nil {
		f.expect = *parts.Expect
	}
	if s := f.expect.Status; s != "" && !slices.Contains(handoff.Statuses(), s) {
		return fixture{}, usagef("%s: expect: there is no status %q", label, s)
	}
	return f, f.checkOutcomes()
}

// checkOutcomes says what is wrong with the outcomes that a game and a person have in a fixture.
func (f *fixture) checkOutcomes() error {
	decisions := []string{"", messages.Approve, messages.Reject}
	statuses := []apply.Status{apply.Applied, apply.Refused}
	switch {
	case f.game == nil && f.approval == nil:
	case f.snapshot == nil:
		return usagef("%s: a fixture with game or approval needs the member snapshot", f.label)
	case f.game != nil && !slices.Contains(statuses, f.game.Status):
		return usagef("%s: game: the status is applied or refused, not %q", f.label, f.game.Status)
	case f.approval != nil && !slices.Contains(decisions, f.approval.Decision):
		return usagef("%s: approval: the decision is approve or reject, not %q", f.label,
			f.approval.Decision)
	}
	return nil
}

// memberError says what is wrong with a member of a fixture, in words of JSON.
func memberError(err error, members string) string {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return sentence(err)
	}
	path := string(semantic.JSONPointer)
	if errors.Is(err, json.ErrUnknownName) {
		return fmt.Sprintf("there is no member %s: %s", path, members)
	}
	kinds := map[jsontext.Kind]string{
		'0': "a number", '"': "a string", 't': "a boolean", 'f': "a boolean",
		'n': "null", '{': "an object", '[': "an array",
	}
	return fmt.Sprintf("%s cannot be %s", orWhole(path), kinds[semantic.JSONKind])
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
