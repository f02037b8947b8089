package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// update is what replay --update changed of a fixture.
type update struct {
	Fixture string `json:"fixture"`
	// Difference is that of what it expected and what it expects now, for people: the bytes of a
	// result stand there as JSON.
	Difference string `json:"difference"`
}

// rewrite is a file whose fixtures get other expectations.
type rewrite struct {
	file    string
	data    []byte // what the file has
	edits   []edit
	updates []update
}

// checkUpdate refuses what --update cannot be given with.
func (c *replayCommand) checkUpdate(fixtures []fixture) error {
	switch {
	case !c.Update:
		return nil
	case slices.Contains(c.Paths, "-"):
		return usagef("--update writes into the files of the fixtures: name files, not -")
	case c.JUnit != "":
		return usagef("--junit reports what differs, and --update makes that what is expected: " +
			"give one of them")
	}
	seen := map[string]string{}
	for i := range fixtures {
		file := fixtures[i].file
		place, err := filepath.EvalSymlinks(file)
		if err == nil {
			place, err = filepath.Abs(place)
		}
		if err != nil {
			return usagef("--update: %v", err)
		}
		if other, ok := seen[place]; ok {
			if other != file || fixtures[i].nth == 0 {
				return usagef("--update: %s is named twice", file)
			}
			continue
		}
		seen[place] = file
		// an error about a file that cannot be written comes before
		opened, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return usagef("--update: %v", err)
		}
		_ = opened.Close()
	}
	return nil
}

// planUpdates returns what has to be written, file by file. Fixtures that passed, and those that
// got no answer that can be expected, are left as they are.
func planUpdates(fixtures []fixture, done []*replayed) ([]*rewrite, error) {
	var plan []*rewrite
	for first := 0; first < len(fixtures); {
		file, end := fixtures[first].file, first
		for end < len(fixtures) && fixtures[end].file == file {
			end++
		}
		w, err := planFile(file, fixtures[first:end], done[first:end])
		if err != nil {
			return nil, err
		}
		if len(w.edits) > 0 {
			plan = append(plan, w)
		}
		first = end
	}
	return plan, nil
}

func planFile(file string, fixtures []fixture, done []*replayed) (*rewrite, error) {
	w := &rewrite{file: file}
	if !slices.ContainsFunc(done, func(r *replayed) bool { return r.updatable() }) {
		return w, nil
	}
	var err error
	if w.data, err = os.ReadFile(file); err != nil {
		return nil, usagef("--update: %v", err)
	}
	spans, err := elementSpans(w.data)
	if err != nil || len(spans) != len(fixtures) {
		return nil, usagef("--update: %s has changed since it was read", file)
	}
	for i := range fixtures {
		f, r := &fixtures[i], done[i]
		if !bytes.Equal(w.data[spans[i].start:spans[i].end], f.element) {
			return nil, usagef("--update: %s has changed since it was read", file)
		}
		if r.updatable() {
			if err := w.expect(f, spans[i], r); err != nil {
				return nil, fmt.Errorf("--update: %s: %w", f.label, err)
			}
		}
	}
	return w, nil
}

// updatable reports whether a fixture got an answer that it did not expect.
func (r *replayed) updatable() bool {
	return r != nil && r.answered != nil && (r.failure != nil || r.unchecked)
}

// expect makes the fixture at a place of the file expect what it was answered.
func (w *rewrite) expect(f *fixture, at span, r *replayed) error {
	members, last, err := memberSpans(w.data, at)
	if err != nil {
		return err
	}
	style := layoutOf(w.data, at)
	before := len(w.edits)
	wanted := f.expect.meeting(r.answered)
	if _, wrapped := members["handoff"]; !wrapped {
		style.wrap(w, at, wanted.json())
	} else if old, given := members["expect"]; !given {
		w.edits = append(w.edits, edit{
			span{last, last}, style.next("expect", style.format(wanted.json(), style.inner)),
		})
	} else if err := w.replace(old, f, wanted, style); err != nil {
		return err
	}
	if len(w.edits) > before {
		r.updated = true
		w.updates = append(w.updates, update{f.label,
			expectationDifference(f.label, &f.expect, wanted)})
	}
	return nil
}

// replace replaces the member expect of a fixture: as little of it as can be.
func (w *rewrite) replace(old span, f *fixture, wanted *expectation, style layout) error {
	if w.data[old.start] != '{' || (wanted.Error != "") != (f.expect.Error != "") ||
		!f.expect.compares() {
		w.edits = append(w.edits, edit{old, style.format(wanted.json(), style.inner)})
		return nil
	}
	members, _, err := memberSpans(w.data, old)
	if err != nil {
		return err
	}
	inner := layoutOf(w.data, old)
	var edits []edit
	for name, value := range wanted.members() {
		at, given := members[name]
		if !given || string(f.expect.members()[name]) == string(value) {
			continue
		}
		of := layoutOf(w.data, at)
		text := of.format(value, of.outer)
		if w.data[at.start] == 'n' { // null has no layout of its own
			text = inner.format(value, inner.inner)
		}
		edits = append(edits, edit{at, text})
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.at.start - b.at.start })
	w.edits = append(w.edits, edits...)
	return nil
}

// wrap makes a fixture of the handoff that stands there by itself.
func (l *layout) wrap(w *rewrite, at span, wanted jsontext.Value) {
	of := *l
	of.inner = l.outer + l.unit
	text, end := w.data[at.start:at.end], "}"
	if l.lines { // no text within JSON has a line break
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\n"+l.unit))
		end = l.newline + l.outer + "}"
	}
	w.edits = append(w.edits, edit{at, slices.Concat([]byte("{"), of.member("handoff", text),
		of.next("expect", of.format(wanted, of.inner)), []byte(end))})
}

// meeting returns the expectation that an answer meets: of a result the members that e has, or what
// handoffctl record gives a fixture where it has none.
func (e *expectation) meeting(answered *expectation) *expectation {
	if answered.Error != "" {
		return &expectation{Error: answered.Error}
	}
	wanted := &expectation{}
	if e.Status != "" {
		wanted.Status = answered.Status
	}
	if e.ReasonCode != "" {
		wanted.ReasonCode = answered.ReasonCode
	}
	if e.Result != nil {
		if wanted.Result = e.Result; differences(e.Result, answered.Result) != nil {
			wanted.Result = answered.Result
		}
	}
	if e.ResultBytes != "" {
		wanted.ResultBytes = answered.ResultBytes
	}
	if !wanted.compares() {
		wanted = &expectation{
			Status: answered.Status, ReasonCode: answered.ReasonCode,
			ResultBytes: answered.ResultBytes,
		}
	}
	return wanted
}

// json returns the expectation as a fixture has it.
func (e *expectation) json() jsontext.Value { return e.object(e.members()) }

// members returns the members that the expectation has, as JSON.
func (e *expectation) members() map[string]jsontext.Value {
	members := map[string]jsontext.Value{}
	for name, text := range map[string]string{
		"status": string(e.Status), "reasonCode": string(e.ReasonCode),
		"resultBytes": e.ResultBytes, "error": e.Error,
	} {
		if text != "" {
			members[name], _ = json.Marshal(text, lenient) // a text can be written
		}
	}
	if e.Result != nil {
		members["result"] = e.Result
	}
	return members
}

func (e *expectation) object(members map[string]jsontext.Value) jsontext.Value {
	object := jsontext.Value("{")
	for _, name := range []string{"status", "reasonCode", "result", "resultBytes", "error"} {
		if value, ok := members[name]; ok {
			if len(object) > 1 {
				object = append(object, ',')
			}
			object = append(append(object, `"`+name+`":`...), value...)
		}
	}
	return append(object, '}')
}

// expectationDifference shows to people what a fixture expected and what it expects now.
func expectationDifference(label string, was, is *expectation) string {
	for _, show := range []func(*expectation) string{
		(*expectation).readable, (*expectation).literal} {
		if d := unified(show(was), show(is), label, "answered"); d != "" {
			return d
		}
	}
	return ""
}

// readable is the expectation with the bytes of a result as JSON.
func (e *expectation) readable() string {
	members := e.members()
	if text := jsontext.Value(e.ResultBytes); text.IsValid(lenient) {
		members["resultBytes"] = text
	}
	return e.indented(members)
}

func (e *expectation) literal() string { return e.indented(e.members()) }

func (e *expectation) indented(members map[string]jsontext.Value) string {
	if !e.compares() {
		return ""
	}
	l := layout{lines: true, unit: "  ", newline: "\n"}
	return string(l.format(e.object(members), "")) + "\n"
}

// write writes the file by replacing it whole.
func (w *rewrite) write() error {
	place, err := filepath.EvalSymlinks(w.file)
	if err != nil {
		return err
	}
	info, err := os.Stat(place)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(place), "."+filepath.Base(place)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // there is none any more when it was renamed
	_, err = temporary.Write(applyEdits(w.data, w.edits))
	if err == nil {
		err = temporary.Chmod(info.Mode().Perm())
	}
	if closed := temporary.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), place)
}

// update shows what the fixtures are going to expect, and writes it into their files.
func (a *app) update(fixtures []fixture, done []*replayed) ([]update, error) {
	plan, err := planUpdates(fixtures, done)
	if err != nil {
		return nil, err
	}
	var all []update
	for _, w := range plan {
		all = append(all, w.updates...)
	}
	for i := range all {
		if a.json() {
			break // the summary has them
		}
		if err := a.printf("%s\n", a.difference(all[i].Difference)); err != nil {
			return nil, err
		}
	}
	for _, w := range plan {
		if err := w.write(); err != nil {
			return nil, usagef("--update: %v", err)
		}
	}
	return all, nil
}

// difference returns a difference as a terminal shows it.
func (a *app) difference(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		switch {
		case i < 2 || line == "":
		case line[0] == '-':
			lines[i] = a.coloured(strings.TrimSuffix(line, "\n"), bad) + "\n"
		case line[0] == '+':
			lines[i] = a.coloured(strings.TrimSuffix(line, "\n"), good) + "\n"
		}
	}
	return strings.Join(lines, "")
}
