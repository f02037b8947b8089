package schemas

import (
	"fmt"
	"io"
)

// Secret is a text of a configuration file that formatting, logging and encoding do not show.
type Secret string

const hidden = "(secret)"

// Format writes a placeholder for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText returns the placeholder, for encoders such as JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
