package schemas

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// Violation is one error in a payload. Path is an RFC 6901 JSON Pointer into the payload ("" is the
// whole payload). Message continues a sentence after "the value" without a full stop, e.g. "must be
// >= 0 but is -1".
type Violation struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// String returns the path and the message for a person.
func (v Violation) String() string { return cmp.Or(v.Path, "(the whole)") + ": " + v.Message }

func (v Violation) compare(other Violation) int {
	return cmp.Or(cmp.Compare(v.Path, other.Path), cmp.Compare(v.Message, other.Message))
}

// Code is the machine code of a refusal and of its error reply.
type Code string

// The codes of a refused payload.
const (
	// CodeInvalidJSON says that the bytes are not one JSON value that Decode accepts.
	CodeInvalidJSON Code = "INVALID_JSON"
	// CodeSchemaValidation says that the JSON value violates its schema, or a check beyond it.
	CodeSchemaValidation Code = "SCHEMA_VALIDATION_FAILED"
	// CodePayloadTooLarge says that the payload has more bytes than its limit; it was not read.
	CodePayloadTooLarge Code = "PAYLOAD_TOO_LARGE"
)

// ValidationError is the error of Decode, Validate and Parse for bad input. Nothing was done with
// the payload; the sender has to correct it. Violations has at least one entry, sorted by path and
// then message. Schema is empty if no schema was involved.
type ValidationError struct {
	Schema     Name
	Code       Code
	Violations []Violation
}

// named is the number of violations that Error spells out.
const named = 3

// Error has in one sentence the schema, and the first few violations with their paths.
func (e *ValidationError) Error() string {
	var b strings.Builder
	b.WriteString("schemas: ")
	if e.Schema != "" {
		b.WriteString(string(e.Schema) + ": ")
	}
	for i, v := range e.Violations {
		if i == named {
			b.WriteString("; and " + e.remaining(i) + " more")
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		if v.Path != "" {
			b.WriteString(v.Path + ": ")
		}
		b.WriteString(v.Message)
	}
	if len(e.Violations) == 0 {
		b.WriteString(string(e.Code))
	}
	return b.String()
}

// remaining counts the violations from the i-th on.
func (e *ValidationError) remaining(i int) string {
	if len(e.Violations) >= maxViolations { // the list may have been cut
		return "many"
	}
	return strconv.Itoa(len(e.Violations) - i)
}

// Invalid returns the error of a payload that fits its schema but fails a check in code, such as
// an echo that differs. Its code is CodeSchemaValidation.
func Invalid(n Name, v ...Violation) *ValidationError {
	return &ValidationError{Schema: n, Code: CodeSchemaValidation, Violations: v}
}

// Unread returns an error of json.Unmarshal as a *ValidationError of the payload, or the kind of file,
// n. It quotes no value.
func Unread(n Name, err error) *ValidationError {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		syntax := refusal(err)
		syntax.Schema = n
		return syntax
	}
	v := Violation{Path: string(semantic.JSONPointer), Message: "must be " + wanted(semantic.GoType)}
	switch {
	case errors.Is(semantic.Err, json.ErrUnknownName):
		v.Message = "is not allowed here"
	case semantic.GoType != nil && semantic.GoType.Kind() == reflect.Interface: // of an unmarshaler
		v.Message = semantic.Err.Error()
	}
	return Invalid(n, v)
}

// wanted describes the JSON values that json.Unmarshal reads into a Go type.
func wanted(t reflect.Type) string {
	if t == nil {
		return "another value"
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "an array"
	case reflect.Int32:
		return "an integer of at most 32 bits"
	}
	return "a " + t.Kind().String()
}

// Pointer builds an RFC 6901 JSON Pointer from member names and array indexes, escaping "~" and
// "/": Pointer("args", "a/b", 2) is "/args/a~1b/2". Without parts it is "", the whole payload.
func Pointer(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		switch p := p.(type) {
		case string:
			b.WriteString(escape(p))
		case int:
			b.WriteString(strconv.Itoa(p))
		default:
			b.WriteString(escape(fmt.Sprint(p)))
		}
	}
	return b.String()
}

func escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// Nest returns the *ValidationError of a part of a payload as an error of the whole payload n. parts are the path to
// the part, as for Pointer. Any other error is returned unchanged.
func Nest(n Name, err error, parts ...any) error {
	part, ok := errors.AsType[*ValidationError](err)
	if !ok {
		return err
	}
	whole := &ValidationError{Schema: n, Code: part.Code, Violations: slices.Clone(part.Violations)}
	for i := range whole.Violations {
		whole.Violations[i].Path = Pointer(parts...) + whole.Violations[i].Path
	}
	return whole
}
