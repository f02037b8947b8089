package handoff

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"worldengine/schemas"
)

// MarshalWire returns the handoff as compact JSON, members in the order of the contract's example.
func (h *Handoff) MarshalWire() ([]byte, error) { return marshal(h) }

// MarshalWire returns the result as compact JSON, members in the order of the contract's example:
// byte for byte ECMAScript's JSON.stringify of the same members.
func (r *Result) MarshalWire() ([]byte, error) { return marshal(r) }

func marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("handoff: cannot write JSON: %w", err)
	}
	return data, nil
}

// Read reads a payload into v after its schema has accepted it. An integer may be written in any way
// that JSON has: 1.5e1 is 15. The error is a *schemas.ValidationError.
func Read(name schemas.Name, data []byte, limits schemas.Limits, v any) error {
	tree, err := schemas.Parse(name, data, limits)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(AppendCanonical(nil, tree), v); err != nil {
		return unreadable(name, err)
	}
	return nil
}

// unreadable refuses a payload that fits its schema but not the Go types, such as an epoch beyond
// an int64.
func unreadable(name schemas.Name, err error) error {
	v := schemas.Violation{Message: "cannot be read: " + err.Error()}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		v = schemas.Violation{Path: string(semantic.JSONPointer), Message: "cannot be read"}
		if semantic.Err != nil {
			v.Message += ": " + semantic.Err.Error()
		}
	}
	return schemas.Invalid(name, v)
}
