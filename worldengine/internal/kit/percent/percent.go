// Package percent encodes texts for the subjects and headers of NATS, as the contract of subjects says.
package percent

import (
	"fmt"
	"net/url"
	"strings"
)

// Encode returns s with every byte outside A-Z a-z 0-9 _ - as % and two upper-case hex
// digits.
func Encode(s string) string {
	plain := 0
	for plain < len(s) && isPlain(s[plain]) {
		plain++
	}
	if plain == len(s) {
		return s
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(3 * len(s))
	for i := 0; i < len(s); i++ {
		if c := s[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&0xF]})
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '-'
}

// Decode undoes Encode. It returns an error for a string that is cut off within an
// encoded byte, or lacks two hex digits after a %.
func Decode(s string) (string, error) {
	decoded, err := url.PathUnescape(s)
	if err != nil {
		return "", fmt.Errorf("worldengine: %q has a bad percent-encoded byte: %w", s, err)
	}
	return decoded, nil
}
