package replay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/tool/junit"
)

// Verdict is the outcome of a case.
type Verdict struct {
	Outcome   string    // the result's status, Refused for an error, or "" if the handoff was not sent
	Failure   *Mismatch // nil if everything is as expected
	Unchecked bool      // the fixture expects nothing
	Took      time.Duration
	// met is an expectation that the answer meets; nil without an answer. changes are the differences
	// between the fixture's own expectation and met.
	met     *fixture.Expectation
	changes []handoff.Difference
	updated bool // the fixture expects the answer from now on
}

// Refused is the outcome of a handoff that got an error reply.
const Refused = "refused"

// Mismatch has the differences between a fixture's answer and the expected one.
type Mismatch struct {
	Fixture  string   `json:"fixture"`
	Expected string   `json:"expected"`
	Got      string   `json:"got"`
	Differs  []string `json:"differs,omitempty"`
	// ByteDifference is the first difference of the result's bytes, if the fixture expects bytes.
	FirstByte *ByteDifference `json:"firstByte,omitzero"`
}

// Lines returns the differences, one on each line.
func (m *Mismatch) Lines() []string { return slices.Concat(m.Differs, m.FirstByte.Lines()) }

// failed returns the verdict of a case whose replay was refused before it was complete.
func (c *Case) failed(outcome, expected string, refused error) *Verdict {
	return &Verdict{Outcome: outcome, Failure: &Mismatch{
		Fixture: c.Label, Expected: expected, Got: "error " + refused.Error(),
	}}
}

// judge compares an answer with the expected one. got describes the answer; details has the details
// of an error reply.
func (c *Case) judge(answer fixture.Expectation, got string, details []schemas.Violation) *Verdict {
	met, changes := c.Expect.Compare(answer)
	v := &Verdict{Outcome: Refused, met: &met, changes: changes}
	var differs []string
	if answer.Error == "" {
		v.Outcome, v.Unchecked = string(answer.Status), c.Expect.IsZero()
	}
	if answer.Error == "" && c.Expect.HasResult() {
		differs = linesOf(changes)
	}
	for _, d := range details {
		differs = append(differs, d.String())
	}
	if !v.Unchecked && len(changes) > 0 {
		v.Failure = &Mismatch{Fixture: c.Label, Expected: c.Expect.String(), Got: got, Differs: differs}
		if c.Expect.ResultBytes != "" && answer.ResultBytes != "" {
			v.Failure.FirstByte = newFirstByte(c.Expect.ResultBytes, answer.ResultBytes)
		}
	}
	return v
}

// linesOf returns a line for each old and each new value.
func linesOf(changes []handoff.Difference) (lines []string) {
	for _, c := range changes {
		if c.Before != nil {
			lines = append(lines, "- "+c.Path+": "+string(c.Before))
		}
		if c.After != nil {
			lines = append(lines, "+ "+c.Path+": "+string(c.After))
		}
	}
	return lines
}

// Report has the findings of a replay.
type Report struct {
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
	Updates []Change `json:"updates,omitempty"`
	// NotReplayed counts the fixtures that were left when the server could not be reached any more.
	NotReplayed int        `json:"notReplayed"`
	Failures    []Mismatch `json:"failures"`
	Seconds     float64    `json:"seconds"`
}

// Outcomes returns the outcomes that a report counts, in their order.
func Outcomes() (names []string) {
	for _, status := range handoff.Statuses() {
		names = append(names, string(status))
	}
	return append(names, Refused)
}

// Summarize returns the findings of cases that were replayed in a time.
func Summarize(cases []Case, took time.Duration) *Report {
	r := &Report{Outcomes: map[string]int{}, Failures: []Mismatch{}, Seconds: took.Seconds()}
	for _, outcome := range Outcomes() {
		r.Outcomes[outcome] = 0
	}
	for i := range cases {
		v := cases[i].Done
		if v == nil {
			r.NotReplayed++
			continue
		}
		r.Replayed++
		if v.Outcome == "" {
			r.Unsent++
		} else {
			r.Outcomes[v.Outcome]++
		}
		switch {
		case v.updated:
			r.Updated++
		case v.Failure != nil:
			r.Failed++
			r.Failures = append(r.Failures, *v.Failure)
		case v.Unchecked:
			r.Unchecked++
		default:
			r.Passed++
		}
	}
	return r
}

// Tests returns a test for each fixture, in a suite for each file. A fixture that expects nothing counts as skipped,
// and one that was not replayed as an error.
func Tests(cases []Case) (tests []junit.Case) {
	for i := range cases {
		c, v := &cases[i], cases[i].Done
		one := junit.Case{Suite: c.File, Name: c.Label, Class: c.File, Seconds: "0"}
		if v != nil {
			one.Seconds = fmt.Sprintf("%.3f", v.Took.Round(time.Millisecond).Seconds())
		}
		switch {
		case v == nil:
			one.Error = &junit.Text{Message: "not replayed"}
		case v.Failure != nil:
			one.Failure = &junit.Text{Text: strings.Join(v.Failure.Lines(), "\n"),
				Message: "expected " + v.Failure.Expected + ", got " + v.Failure.Got}
		case v.Unchecked:
			one.Skipped = &junit.Text{Message: "the fixture expects nothing"}
		}
		tests = append(tests, one)
	}
	return tests
}

// Change is a new expectation of a fixture.
type Change struct {
	Fixture string `json:"fixture"`
	// Difference has a line for each old and each new value of the expectation that has changed.
	Difference string `json:"difference"`
}

// Update makes each fixture that failed or expects nothing expect its answer, and rewrites its file,
// unless the file has changed since it was read.
func Update(cases []Case) (all []Change, err error) {
	byFile, changed := map[string][]*fixture.Fixture{}, []*Case{}
	for i := range cases {
		c, v := &cases[i], cases[i].Done
		byFile[c.File] = append(byFile[c.File], &c.Fixture)
		if v.met == nil || v.Failure == nil && !v.Unchecked {
			continue
		}
		all = append(all, Change{c.Label, strings.Join(linesOf(v.changes), "\n") + "\n"})
		c.Expect, v.updated = *v.met, true
		if n := len(changed); n == 0 || changed[n-1].File != c.File {
			changed = append(changed, c)
		}
	}
	for _, c := range changed {
		if now, err := os.ReadFile(c.File); err != nil || !bytes.Equal(now, c.Source) {
			return nil, fmt.Errorf("%s has changed since it was read, or is named twice", c.File)
		}
		text, err := fixture.Write(byFile[c.File], filepath.Ext(c.File) != ".json")
		if err == nil {
			err = os.WriteFile(c.File, text, 0o666)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
