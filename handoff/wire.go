package handoff

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"worldengine/schemas"
)

// MarshalWire returns the handoff as compact JSON, members in the order of the contract's example.
func (h *Handoff) MarshalWire() ([]byte, error) { return marshal(h) }

// MarshalWire returns the result as compact JSON, members in the order of the contract's example:
// byte for byte what ECMAScript's JSON.stringify gives for the same members.
func (r *Result) MarshalWire() ([]byte, error) { return marshal(r) }

func marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("handoff: cannot write JSON: %w", err)
	}
	return data, nil
}

// unmarshal reads data, which its schema has passed, into a T.
func unmarshal[T any](data []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, schemas.Invalid("", schemas.Violation{Message: err.Error()})
	}
	return v, nil
}
