package schemas

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// reader builds the tree of one payload.
type reader struct {
	dec   *jsontext.Decoder
	depth int // the deepest nesting that is allowed
	hard  int // the number of hard numbers so far
}

func (r *reader) value() (any, error) {
	t, err := r.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case jsontext.KindNull:
		return nil, nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return t.Bool(), nil
	case jsontext.KindString:
		return t.String(), nil
	case jsontext.KindNumber:
		return r.number(t)
	case jsontext.KindBeginObject:
		return r.object()
	default: // an array: the decoder itself refuses an end that does not belong here
		return r.array()
	}
}

func (r *reader) number(t jsontext.Token) (any, error) {
	text := t.String()
	if isHard(text) {
		if r.hard++; r.hard > maxHard {
			return nil, r.refuse(fmt.Sprintf("is a very long, small or large number beyond the %d "+
				"that a payload may have", maxHard))
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, r.refuse("is a number that overflows a float64")
	}
	if f == 0 {
		f = 0 // not -0
	}
	return f, nil
}

// maxHard bounds the hard numbers of a payload.
const maxHard = 1000

// isHard reports whether strconv.ParseFloat may need 10 to 50 µs for a number instead of 50 ns, as
// for a subnormal number, or one that differs from its neighbour only in its many digits. 1 MiB of
// such numbers would take 1.5 s. A number of up to 17 digits, as programs write it, is hard only
// because of its exponent.
func isHard(number string) bool {
	if len(number) > 25 {
		return true
	}
	i := strings.IndexAny(number, "eE")
	return i >= 0 && len(strings.TrimLeft(number[i+1:], "+-0")) > 2
}

func (r *reader) object() (any, error) {
	if err := r.checkDepth(); err != nil {
		return nil, err
	}
	o := map[string]any{}
	for r.dec.PeekKind() != jsontext.KindEndObject {
		t, err := r.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name := t.String()
		if o[name], err = r.value(); err != nil {
			return nil, err
		}
	}
	_, err := r.dec.ReadToken()
	return o, err
}

func (r *reader) array() (any, error) {
	if err := r.checkDepth(); err != nil {
		return nil, err
	}
	a := []any{}
	for r.dec.PeekKind() != jsontext.KindEndArray {
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		a = append(a, v)
	}
	_, err := r.dec.ReadToken()
	return a, err
}

func (r *reader) checkDepth() error {
	if r.dec.StackDepth() > r.depth {
		return r.refuse(fmt.Sprintf("is nested deeper than %d levels", r.depth))
	}
	return nil
}

// refuse returns the error of the latest token, with the byte at which it ends.
func (r *reader) refuse(msg string) error {
	msg = fmt.Sprintf("%s, before byte %d", msg, r.dec.InputOffset())
	return refused(CodeInvalidJSON, string(r.dec.StackPointer()), msg)
}

// end checks that nothing but white space follows the value.
func (r *reader) end(data []byte) error {
	offset := int(r.dec.InputOffset())
	rest := bytes.TrimLeft(data[offset:], " \t\r\n")
	if len(rest) == 0 {
		return nil
	}
	offset = len(data) - len(rest)
	return refused(CodeInvalidJSON,
		"", fmt.Sprintf("must be one JSON value but goes on at byte %d", offset))
}
