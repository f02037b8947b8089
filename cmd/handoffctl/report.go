package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"time"

	"worldengine/handoff"
)

// summary has the findings of a replay.
type summary struct {
	// Outcomes counts the fixtures by the status of their result, or refused.
	Outcomes map[string]int `json:"outcomes"`
	Replayed int            `json:"replayed"`
	// Passed, Failed and Unchecked are how many answered as expected, how many did not, and how
	// many expect nothing.
	Passed    int `json:"passed"`
	Failed    int `json:"failed"`
	Unchecked int `json:"unchecked"`
	// Updated counts the fixtures with a new expectation, and Updates has them.
	Updated int      `json:"updated,omitzero"`
	Updates []update `json:"updates,omitempty"`
	// NotReplayed is how many were left when the server could not be reached any more.
	NotReplayed int        `json:"notReplayed"`
	Failures    []mismatch `json:"failures"`
	Seconds     float64    `json:"seconds"`
}

// printReplay prints the findings of a replay. It returns an error if fixtures failed, and none if the
// replay was stopped by another error.
func (a *app) printReplay(
	done []*replayed, took time.Duration, updates []update, stopped error,
) error {
	s := summarize(done, took)
	s.Updates = updates
	if stopped == nil || !a.json() {
		if err := a.print(s, func(t table) { t.summary(&s) }); err != nil {
			return err
		}
	}
	if len(s.Failures) > 0 && stopped == nil {
		return failedf("%d of %d fixtures failed", len(s.Failures), s.Replayed)
	}
	return nil
}

func summarize(done []*replayed, took time.Duration) summary {
	s := summary{Outcomes: map[string]int{}, Failures: []mismatch{}, Seconds: took.Seconds()}
	for _, status := range handoff.Statuses() {
		s.Outcomes[string(status)] = 0
	}
	s.Outcomes[refusedOutcome] = 0
	for _, r := range done {
		if r == nil {
			s.NotReplayed++
			continue
		}
		s.Replayed++
		s.Outcomes[r.outcome]++
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

func (t table) summary(s *summary) {
	for _, status := range handoff.Statuses() {
		t.row(status, s.Outcomes[string(status)])
	}
	t.row(refusedOutcome, s.Outcomes[refusedOutcome])
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
	}
}

// The elements of a report in JUnit's XML. writeJUnit counts the cases.
type (
	junitReport struct {
		XMLName xml.Name `xml:"testsuites"`
		junitCounts
		Suites []*junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitCounts
		Cases []junitCase `xml:"testcase"`
	}
	junitCounts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
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

// writeJUnit writes a report into a file.
func writeJUnit(name string, suites ...*junitSuite) error {
	report := junitReport{Suites: suites}
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
	if err := os.WriteFile(name, []byte(xml.Header+string(data)+"\n"), 0o644); err != nil {
		return usagef("--junit: %v", err)
	}
	return nil
}

func (n *junitCounts) count(c *junitCase) {
	n.Tests++
	switch {
	case c.Failure != nil:
		n.Failures++
	case c.Error != nil:
		n.Errors++
	case c.Skipped != nil:
		n.Skipped++
	}
}

// junitSuites returns a suite for each file of a replay, with a case for each fixture. A fixture that
// expects nothing counts as skipped, and one that was not replayed as an error.
func junitSuites(fixtures []fixture, done []*replayed) []*junitSuite {
	var suites []*junitSuite
	for i := range fixtures {
		f, r := &fixtures[i], done[i]
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
			c.Failure = &junitText{Text: strings.Join(r.failure.Differs, "\n"),
				Message: "expected " + r.failure.Expected + ", got " + r.failure.Got}
		case r.unchecked:
			c.Skipped = &junitText{Message: "the fixture expects nothing"}
		}
		suite.Cases = append(suite.Cases, c)
	}
	return suites
}
