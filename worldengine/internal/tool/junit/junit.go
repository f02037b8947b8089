// Package junit writes reports of tests in the XML of JUnit.
package junit

import "encoding/xml"

// Suite is a group of cases. Marshal counts them.
type Suite struct {
	XMLName  xml.Name
	Name     string   `xml:"name,attr,omitempty"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Suites   []*Suite `xml:"testsuite"`
	Cases    []Case   `xml:"testcase"`
}

// Case is a test. It passed if it has no Failure, Error or Skipped.
type Case struct {
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

// Marshal returns a report of suites.
func Marshal(suites ...*Suite) ([]byte, error) {
	report := &Suite{XMLName: xml.Name{Local: "testsuites"}, Suites: suites}
	for _, s := range suites {
		for i := range s.Cases {
			s.count(&s.Cases[i])
			report.count(&s.Cases[i])
		}
	}
	data, err := xml.MarshalIndent(report, "", "  ")
	return []byte(xml.Header + string(data) + "\n"), err
}

func (s *Suite) count(c *Case) {
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
