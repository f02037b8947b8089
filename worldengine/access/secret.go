package access

import (
	"fmt"
	"io"
)

// Secret is a text that formatting, logging and encoding do not show.
type Secret string

const hidden = "(secret)"

// Format writes that there is a secret, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText is Format for encoders such as JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
