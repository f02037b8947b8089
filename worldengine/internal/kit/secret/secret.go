// Package secret hides passwords and tokens from logs and messages.
package secret

import (
	"fmt"
	"io"
)

// Text is a text of a configuration file that formatting, logging and encoding do not show.
type Text string

const hidden = "(secret)"

// Format writes a placeholder for every verb.
func (Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText returns the placeholder, for encoders such as JSON.
func (Text) MarshalText() ([]byte, error) { return []byte(hidden), nil }
