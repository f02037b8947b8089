package handoff

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

var errNotUTF8 = errors.New("handoff: a string is not valid UTF-8")

// AppendJSON appends the report as a result has it. The error is that of a string which is not
// valid UTF-8.
func (r *PreconditionReport) AppendJSON(b []byte) ([]byte, error) {
	return appended(b, func(w *writer) { w.preconditionReport(r) })
}

// AppendJSON is as that of PreconditionReport.
func (r *StaleReport) AppendJSON(b []byte) ([]byte, error) {
	return appended(b, func(w *writer) { w.staleReport(r) })
}

// AppendJSON is as that of PreconditionReport.
func (r *DuplicateReport) AppendJSON(b []byte) ([]byte, error) {
	return appended(b, func(w *writer) { w.duplicateReport(r) })
}

// AppendJSON is as that of PreconditionReport.
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

// AppendTexts appends what stands before a text, and then the text as a JSON string, for each of
// the pairs. The error is that of a text which is not valid UTF-8.
func AppendTexts(b []byte, pairs [][2]string) ([]byte, error) {
	for _, pair := range pairs {
		var err error
		if b, err = jsontext.AppendQuote(append(b, pair[0]...), pair[1]); err != nil {
			return nil, err
		}
	}
	return b, nil
}
