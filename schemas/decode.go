package schemas

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// The defaults of Limits.
const (
	DefaultBytes = 1 << 20
	DefaultDepth = 32
)

// Limits bounds the payloads that Decode reads. Values of 0 or less mean the documented defaults.
type Limits struct {
	// Bytes is the size of the largest payload, by default 1 MiB. A tree needs at worst some thirty
	// times the memory of its text.
	Bytes int
	// Depth is the deepest nesting of arrays and objects, by default 32. A payload that is one
	// array or object without others in it is 1 deep.
	Depth int
}

// withDefaults returns l with the defaults for values of 0 or less.
func (l Limits) withDefaults() Limits {
	return Limits{
		Bytes: cmp.Or(max(l.Bytes, 0), DefaultBytes),
		Depth: cmp.Or(max(l.Depth, 0), DefaultDepth),
	}
}

// Decode reads data as exactly one JSON value. It is strict: it refuses invalid UTF-8 and a byte
// order mark, two members of one name in any spelling, lone surrogates, numbers that overflow a
// float64 such as 1e400, anything but white space after the value, and payloads beyond lim. A
// number becomes the closest float64, and -0 becomes 0. A payload may hold at most 1000 numbers of
// more than 25 characters or with an exponent beyond ±99, which may take a thousand times longer to
// read.
//
// The tree has map[string]any, []any, string, float64, bool and nil; it shares no memory with data.
// The error is a *ValidationError with one violation and CodePayloadTooLarge (too many bytes,
// nothing was read) or CodeInvalidJSON (all else). Time and memory are linear in len(data).
func Decode(data []byte, lim Limits) (any, error) {
	lim = lim.withDefaults()
	if len(data) > lim.Bytes {
		msg := fmt.Sprintf("must have at most %d bytes but has %d", lim.Bytes, len(data))
		return nil, refused(CodePayloadTooLarge, "", msg)
	}
	dec := decoders.Get().(*jsontext.Decoder)
	dec.Reset(bytes.NewBuffer(data))
	defer func() {
		dec.Reset(nothing{}) // let go of data
		decoders.Put(dec)
	}()
	r := reader{dec: dec, depth: lim.Depth}
	tree, err := r.value()
	if err == nil {
		err = r.end(data)
	}
	if err != nil {
		return nil, refusal(err)
	}
	return tree, nil
}

var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(nothing{}) }}

// nothing is an empty stream.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

// refusal turns an error of the reader into a *ValidationError.
func refusal(err error) *ValidationError {
	if ve, ok := errors.AsType[*ValidationError](err); ok {
		return ve
	}
	syn, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok { // io.EOF: there was no value
		return refused(CodeInvalidJSON, "", "must be a JSON value but is empty")
	}
	if errors.Is(syn, jsontext.ErrDuplicateName) {
		msg := fmt.Sprintf("is a second member of this name, at byte %d", syn.ByteOffset)
		return refused(CodeInvalidJSON, string(syn.JSONPointer), msg)
	}
	what := strings.TrimPrefix(syn.Err.Error(), "jsontext: ")
	msg := fmt.Sprintf("is not valid JSON: %s at byte %d", what, syn.ByteOffset)
	if syn.ByteOffset == 0 && strings.HasPrefix(what, `invalid character '\ufeff'`) {
		msg = "is not valid JSON: it begins with a byte order mark (BOM); " +
			"it has to be UTF-8 without one"
	}
	return refused(CodeInvalidJSON, string(syn.JSONPointer), msg)
}

func refused(code Code, path, msg string) *ValidationError {
	return &ValidationError{Code: code, Violations: []Violation{newViolation(path, msg)}}
}
