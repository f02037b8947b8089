package handoff

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

var errNotUTF8 = errors.New("handoff: a string is not valid UTF-8")

// AppendJSON appends the report to b as a result has it. The error says that one of its texts is
// not valid UTF-8.
func (r *PreconditionReport) AppendJSON(b []byte) ([]byte, error) {
	return appended(b, func(w *writer) { w.preconditionReport(r) })
}

// AppendJSON appends the report to b, as PreconditionReport.AppendJSON does.
func (r *StaleReport) AppendJSON(b []byte) ([]byte, error) {
	return appended(b, func(w *writer) { w.staleReport(r) })
}

// AppendJSON appends the report to b, as PreconditionReport.AppendJSON does.
func (r *DuplicateReport) AppendJSON(b []byte) ([]byte, error) {
	return appended(b, func(w *writer) { w.duplicateReport(r) })
}

// AppendJSON appends the world state to b, as PreconditionReport.AppendJSON does.
func (s *WorldState) AppendJSON(b []byte) ([]byte, error) {
	return appended(b, func(w *writer) { w.worldState(s) })
}

func appended(b []byte, write func(*writer)) ([]byte, error) {
	w := writer{b: b}
	if write(&w); w.failed {
		return nil, errNotUTF8
	}
	return w.b, nil
}

// AppendMembers appends members of a JSON object to b. Of each pair the first text is appended as
// it is, such as `,"townId":`, and the second as a JSON string. The error says that the second text
// of a pair is not valid UTF-8.
func AppendMembers(b []byte, members [][2]string) ([]byte, error) {
	for _, member := range members {
		var err error
		if b, err = jsontext.AppendQuote(append(b, member[0]...), member[1]); err != nil {
			return nil, err
		}
	}
	return b, nil
}
