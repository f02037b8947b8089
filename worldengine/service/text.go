package service

import (
	"strings"
	"unicode"
)

// maxHeaderText bounds the sentence in a reply's header, in bytes; the body has all of it.
const maxHeaderText = 512

// headerText makes a text fit for a header: one line of printable ASCII.
func headerText(text string) string {
	var b strings.Builder
	for _, r := range text {
		if b.Len() >= maxHeaderText {
			break
		}
		switch {
		case r < unicode.MaxASCII && unicode.IsPrint(r):
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		default:
			b.WriteByte('?')
		}
	}
	return b.String()
}
