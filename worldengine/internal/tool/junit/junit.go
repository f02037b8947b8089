// Package junit writes reports of tests in the XML of JUnit.
package junit

import "encoding/xml"

// suite is a group of cases, or of groups.
type suite struct {
	XMLName  xml.Name
	Name     string   `xml:"name,attr,omitempty"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Suites   []*suite `xml:"testsuite"`
	Cases    []Case   `xml:"testcase"`
}

// Case is a test. It passed if it has no Failure, Error or Skipped.
type Case struct {
	Suite   string `xml:"-"`
	Name    string `xml:"name,attr"`
	Class   string `xml:"classname,attr"`
	Seconds string `xml:"time,attr"`
	Failure *Text  `xml:"failure"`
	Error   *Text  `xml:"error"`
	Skipped *Text  `xml:"skipped"`
}

// Text is why a test did not pass.
type Text struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// Marshal returns a report of cases. The cases of a suite follow each other.
func Marshal(cases []Case) ([]byte, error) {
	report, last := &suite{XMLName: xml.Name{Local: "testsuites"}}, (*suite)(nil)
	for _, c := range cases {
		if last == nil || last.Name != c.Suite {
			last = &suite{Name: c.Suite}
			report.Suites = append(report.Suites, last)
		}
		last.Cases = append(last.Cases, c)
		last.count(&c)
		report.count(&c)
	}
	data, err := xml.MarshalIndent(report, "", "  ")
	return []byte(xml.Header + string(data) + "\n"), err
}

func (s *suite) count(c *Case) {
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
