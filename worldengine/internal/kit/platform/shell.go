package platform

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plain matches the words that no shell changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$`)

// ShellQuote returns a word as a POSIX shell reads it back, for a command that a person may copy. A word
// with characters that no terminal shows is in the form $'…', which dash does not know.
func ShellQuote(word string) string {
	switch {
	case plain.MatchString(word):
		return word
	case !utf8.ValidString(word),
		strings.ContainsFunc(word, func(r rune) bool { return !strconv.IsPrint(r) }):
		inner := strconv.Quote(word)
		inner = strings.ReplaceAll(inner[1:len(inner)-1], `\"`, `"`)
		return "$'" + strings.ReplaceAll(inner, "'", `\'`) + "'"
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
