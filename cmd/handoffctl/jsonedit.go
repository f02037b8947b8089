package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// span is where a value stands in a text: data[start:end].
type span struct{ start, end int }

// edit replaces what stands at a span of a file; an empty span is a place to insert at.
type edit struct {
	at   span
	text []byte
}

// applyEdits returns the text with the edits, whose spans do not overlap and are in their order.
func applyEdits(data []byte, edits []edit) []byte {
	out, from := make([]byte, 0, len(data)), 0
	for _, e := range edits {
		out = append(append(out, data[from:e.at.start]...), e.text...)
		from = e.at.end
	}
	return append(out, data[from:]...)
}

// elementSpans returns where the elements stand that elementsOf reads, in the same order.
func elementSpans(data []byte) ([]span, error) {
	whole, err := valueSpans(data, false)
	if err != nil || len(whole) != 1 || data[whole[0].start] != '[' {
		return whole, err
	}
	return valueSpans(data, true)
}

// valueSpans returns where the values of a text stand, or those of the array that it is.
func valueSpans(data []byte, within bool) ([]span, error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(data), lenient)
	if within {
		if _, err := decoder.ReadToken(); err != nil {
			return nil, err
		}
	}
	var found []span
	for !within || decoder.PeekKind() != ']' {
		value, err := decoder.ReadValue()
		if errors.Is(err, io.EOF) && !within {
			break
		}
		if err != nil {
			return nil, err
		}
		end := int(decoder.InputOffset())
		found = append(found, span{end - len(value), end})
	}
	return found, nil
}

// memberSpans returns where the values of the members of the object at s stand, the last one where
// a name is there twice, and where the last value ends.
func memberSpans(data []byte, s span) (members map[string]span, last int, err error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(data[s.start:s.end]), lenient)
	if _, err := decoder.ReadToken(); err != nil {
		return nil, 0, err
	}
	members, last = map[string]span{}, s.start+1
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadToken()
		if err != nil {
			return nil, 0, err
		}
		named := name.String()
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, 0, err
		}
		last = s.start + int(decoder.InputOffset())
		members[named] = span{last - len(value), last}
	}
	return members, last, nil
}

// layout is how the object at a span is written.
type layout struct {
	lines bool // each member has a line
	// the indentation of the object and of its members, and their difference
	outer, inner, unit string
	spaced             bool // of one without lines: whether spaces follow colons and commas
	newline            string
}

func layoutOf(data []byte, s span) layout {
	l := layout{newline: "\n", unit: "  "}
	if bytes.Contains(data, []byte("\r\n")) {
		l.newline = "\r\n"
	}
	text := data[s.start:s.end]
	l.outer = indentation(data[bytes.LastIndexByte(data[:s.start], '\n')+1:])
	if at := bytes.IndexByte(text, '\n'); at >= 0 {
		l.lines, l.inner = true, indentation(text[at+1:])
		if unit, ok := strings.CutPrefix(l.inner, l.outer); ok && unit != "" {
			l.unit = unit
		}
		return l
	}
	_, behind, _ := bytes.Cut(text, []byte(`":`))
	l.spaced = bytes.HasPrefix(behind, []byte(" "))
	return l
}

func indentation(line []byte) string {
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// format writes a value as the object does whose layout it is; indent stands before its further
// lines.
func (l *layout) format(value jsontext.Value, indent string) []byte {
	value = value.Clone()
	var err error
	if l.lines {
		err = value.Format(lenient, jsontext.PreserveRawStrings(true), jsontext.Multiline(true),
			jsontext.WithIndent(l.unit), jsontext.WithIndentPrefix(indent))
	} else {
		err = value.Format(lenient, jsontext.PreserveRawStrings(true),
			jsontext.SpaceAfterColon(l.spaced), jsontext.SpaceAfterComma(l.spaced))
	}
	if err != nil {
		return value // it is JSON all the same
	}
	return bytes.ReplaceAll(value, []byte("\n"), []byte(l.newline))
}

// member writes a member of the object, without a comma.
func (l *layout) member(name string, value []byte) []byte {
	text := `"` + name + `":`
	if l.lines {
		text = l.newline + l.inner + text
	}
	if l.lines || l.spaced {
		text += " "
	}
	return slices.Concat([]byte(text), value)
}

// next writes a further member of the object, with the comma before it.
func (l *layout) next(name string, value []byte) []byte {
	text := l.member(name, value)
	if !l.lines && l.spaced {
		text = slices.Concat([]byte(" "), text)
	}
	return slices.Concat([]byte(","), text)
}
