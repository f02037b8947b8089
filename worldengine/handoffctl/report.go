package handoffctl

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
)

// summary has the findings of a replay.
type summary struct {
	// Outcomes counts the handoffs by the status of their last result, or refused for an error; Unsent counts
	// the fixtures whose snapshot was refused, so that no handoff was sent. Their sum is Replayed.
	Outcomes map[string]int `json:"outcomes"`
	Unsent   int            `json:"unsent,omitzero"`
	Replayed int            `json:"replayed"`
	// Passed counts the fixtures that got the expected answer, Failed those that did not, and
	// Unchecked those that expect nothing. With Updated their sum is Replayed.
	Passed    int `json:"passed"`
	Failed    int `json:"failed"`
	Unchecked int `json:"unchecked"`
	// Updated counts the fixtures with a new expectation, and Updates has them.
	Updated int      `json:"updated,omitzero"`
	Updates []update `json:"updates,omitempty"`
	// NotReplayed counts the fixtures that were left when the server could not be reached any more.
	NotReplayed int        `json:"notReplayed"`
	Failures    []mismatch `json:"failures"`
	Seconds     float64    `json:"seconds"`
}

// printReplay prints the findings of a replay. It returns an error if fixtures failed, unless
// another error has stopped the replay.
func (a *app) printReplay(
	fixtures []fixture, took time.Duration, updates []update, stopped error,
) error {
	s := summarize(fixtures, took)
	s.Updates = updates
	if stopped == nil || !a.json() {
		if err := a.print(s, func(t table) { a.writeSummary(t, &s) }); err != nil {
			return err
		}
	}
	if len(s.Failures) > 0 && stopped == nil {
		return failedf("%d of %d fixtures failed", len(s.Failures), s.Replayed)
	}
	return nil
}

func summarize(fixtures []fixture, took time.Duration) summary {
	s := summary{Outcomes: map[string]int{}, Failures: []mismatch{}, Seconds: took.Seconds()}
	for _, outcome := range append(handoff.Statuses(), refusedOutcome) {
		s.Outcomes[string(outcome)] = 0
	}
	for i := range fixtures {
		r := fixtures[i].done
		if r == nil {
			s.NotReplayed++
			continue
		}
		s.Replayed++
		if r.outcome == "" {
			s.Unsent++
		} else {
			s.Outcomes[r.outcome]++
		}
		switch {
		case r.updated:
			s.Updated++
		case r.failure != nil:
			s.Failed++
			s.Failures = append(s.Failures, *r.failure)
		case r.unchecked:
			s.Unchecked++
		default:
			s.Passed++
		}
	}
	return s
}

// writeSummary writes the updates and the findings.
func (a *app) writeSummary(t table, s *summary) {
	for _, u := range s.Updates {
		t.linef("%s expects what was answered:", u.Fixture)
		for line := range strings.Lines(u.Difference) {
			tone := good
			if line[0] == '-' {
				tone = bad
			}
			t.linef("%s", a.coloured(strings.TrimSuffix(line, "\n"), tone))
		}
		t.linef("")
	}
	for _, outcome := range append(handoff.Statuses(), refusedOutcome) {
		t.row(outcome, s.Outcomes[string(outcome)])
	}
	if s.Unsent > 0 {
		t.row("not sent", s.Unsent)
	}
	t.linef("replayed\t%d in %s, %.0f/s", s.Replayed,
		time.Duration(s.Seconds*float64(time.Second)).Round(time.Millisecond),
		float64(s.Replayed)/max(s.Seconds, 1e-9))
	if s.NotReplayed > 0 {
		t.row("not replayed", s.NotReplayed)
	}
	t.linef("%d passed, %d failed, %d unchecked (they expect nothing)", s.Passed, s.Failed,
		s.Unchecked)
	if s.Updated > 0 {
		t.linef("%d updated: they expect what was answered", s.Updated)
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		t.linef("\nfailed: %s\n  expected %s\n  got      %s", f.Fixture, f.Expected, show(f.Got))
		for _, d := range f.Differs {
			t.linef("    %s", show(d))
		}
		for _, line := range f.FirstByte.lines() {
			t.linef("    %s", line)
		}
	}
}

// The elements of a JUnit report in XML. The outermost suite has suites, and the others have cases.
// writeJUnit counts the cases.
type (
	junitSuite struct {
		XMLName  xml.Name
		Name     string        `xml:"name,attr,omitempty"`
		Tests    int           `xml:"tests,attr"`
		Failures int           `xml:"failures,attr"`
		Errors   int           `xml:"errors,attr"`
		Skipped  int           `xml:"skipped,attr"`
		Suites   []*junitSuite `xml:"testsuite"`
		Cases    []junitCase   `xml:"testcase"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Seconds string     `xml:"time,attr"`
		Failure *junitText `xml:"failure"`
		Error   *junitText `xml:"error"`
		Skipped *junitText `xml:"skipped"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes a report into a file, if one is named.
func writeJUnit(file outputFile, suites ...*junitSuite) error {
	if file == "" {
		return nil
	}
	report := &junitSuite{XMLName: xml.Name{Local: "testsuites"}, Suites: suites}
	for _, s := range suites {
		for i := range s.Cases {
			s.count(&s.Cases[i])
			report.count(&s.Cases[i])
		}
	}
	data, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("the JUnit report cannot be written: %w", err)
	}
	return file.write([]byte(xml.Header + string(data) + "\n"))
}

func (s *junitSuite) count(c *junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

// junitSuites returns a suite for each file of a replay, with a case for each fixture. A fixture
// that expects nothing counts as skipped. A fixture that was not replayed counts as an error.
func junitSuites(fixtures []fixture) []*junitSuite {
	var suites []*junitSuite
	for i := range fixtures {
		f, r := &fixtures[i], fixtures[i].done
		if last := len(suites) - 1; last < 0 || suites[last].Name != f.file {
			suites = append(suites, &junitSuite{Name: f.file})
		}
		suite := suites[len(suites)-1]
		c := junitCase{Name: f.label, Class: f.file, Seconds: "0"}
		if r != nil {
			c.Seconds = fmt.Sprintf("%.3f", r.took.Round(time.Millisecond).Seconds())
		}
		switch {
		case r == nil:
			c.Error = &junitText{Message: "not replayed"}
		case r.failure != nil:
			c.Failure = &junitText{Text: strings.Join(append(slices.Clip(r.failure.Differs), r.failure.FirstByte.lines()...), "\n"),
				Message: "expected " + r.failure.Expected + ", got " + r.failure.Got}
		case r.unchecked:
			c.Skipped = &junitText{Message: "the fixture expects nothing"}
		}
		suite.Cases = append(suite.Cases, c)
	}
	return suites
}

// update is a change of a fixture by replay --update.
type update struct {
	Fixture string `json:"fixture"`
	// Difference has a line for each old and each new value of the expectation that has changed.
	Difference string `json:"difference"`
}

// updateFixtures makes each fixture that failed or expects nothing expect its answer, and rewrites
// its file, unless the file has changed since it was read.
func updateFixtures(fixtures []fixture) ([]update, error) {
	var all []update
	byFile, sources := map[string][]*fixtureParts{}, map[string][]byte{}
	for i := range fixtures {
		f, r := &fixtures[i], fixtures[i].done
		byFile[f.file] = append(byFile[f.file], &f.fixtureParts)
		if r.met != nil && (r.failure != nil || r.unchecked) {
			all = append(all, update{f.label, strings.Join(linesOfChanges(r.changes), "\n") + "\n"})
			f.Expect, r.updated, sources[f.file] = *r.met, true, f.source
		}
	}
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, sources[file]) {
			return nil, usagef("--update: %s has changed since it was read, or is named twice", file)
		}
		text, err := fixtureFile(byFile[file], filepath.Ext(file) != ".json")
		if err == nil {
			err = os.WriteFile(file, text, 0o666)
		}
		if err != nil {
			return nil, usagef("--update: %v", err)
		}
	}
	return all, nil
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
