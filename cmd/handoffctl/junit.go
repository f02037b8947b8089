package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"time"
)

// The elements of a report in JUnit's XML: a suite for each file, a case for each fixture.
type (
	junitReport struct {
		XMLName  xml.Name      `xml:"testsuites"`
		Tests    int           `xml:"tests,attr"`
		Failures int           `xml:"failures,attr"`
		Errors   int           `xml:"errors,attr"`
		Skipped  int           `xml:"skipped,attr"`
		Suites   []*junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
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

// writeJUnit writes what a replay found. A fixture that expects nothing counts as skipped, and one
// that was not replayed as an error.
func writeJUnit(name string, fixtures []fixture, done []*replayed) error {
	var all []*junitSuite
	suites := map[string]*junitSuite{}
	for i := range fixtures {
		f := &fixtures[i]
		suite, ok := suites[f.file]
		if !ok {
			suite = &junitSuite{Name: f.file}
			suites[f.file], all = suite, append(all, suite)
		}
		suite.add(f, done[i])
	}
	return writeSuites(name, all)
}

// writeSuites writes a report.
func writeSuites(name string, suites []*junitSuite) error {
	report := junitReport{Suites: suites}
	for _, s := range suites {
		report.Tests += s.Tests
		report.Failures, report.Errors, report.Skipped = report.Failures+s.Failures, report.Errors+
			s.Errors, report.Skipped+s.Skipped
	}
	data, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("the JUnit report cannot be written: %w", err)
	}
	if err := os.WriteFile(name, append([]byte(xml.Header), append(data, '\n')...),
		0o644); err != nil {
		return usagef("--junit: %v", err)
	}
	return nil
}

func (s *junitSuite) add(f *fixture, done *replayed) {
	c := junitCase{Name: f.label, Class: f.file, Seconds: "0"}
	s.Tests++
	switch {
	case done == nil:
		s.Errors++
		c.Error = &junitText{Message: "not replayed"}
	case done.failure != nil:
		s.Failures++
		m := done.failure
		c.Failure = &junitText{
			Message: "expected " + m.Expected + ", got " + m.Got,
			Text:    strings.Join(m.Differs, "\n"),
		}
	case done.unchecked:
		s.Skipped++
		c.Skipped = &junitText{Message: "the fixture expects nothing"}
	}
	if done != nil {
		c.Seconds = fmt.Sprintf("%.3f", done.took.Round(time.Millisecond).Seconds())
	}
	s.Cases = append(s.Cases, c)
}
