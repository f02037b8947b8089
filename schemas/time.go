package schemas

import (
	"strings"
	"time"
)

// ParseTime reads an RFC 3339 time in each of its forms: T and Z in either case, any offset, and a
// leap second, which counts as the second before it.
func ParseTime(text string) (time.Time, error) {
	text = strings.Replace(strings.ToUpper(text), "T23:59:60", "T23:59:59", 1)
	return time.Parse(time.RFC3339, text)
}

// UTC returns an RFC 3339 time as records have it, in UTC and ending in Z. A text that has this
// form, or is no time, stays as it is.
func UTC(text string) string {
	if _, err := time.Parse(time.RFC3339, text); err == nil && strings.HasSuffix(text, "Z") {
		return text
	}
	at, err := ParseTime(text)
	if err != nil {
		return text
	}
	return at.UTC().Format(time.RFC3339Nano)
}
