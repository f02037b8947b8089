package service

import (
	"strings"
	"unicode"
)

// maxHeaderText bounds the sentence in a reply's header, in bytes; the body has all of it.
const maxHeaderText = 512

// sentence returns an error's text without the name of the package that it comes from.
func sentence(err error) string {
	text := err.Error()
	for _, prefix := range []string{"worldengine: ", "schemas: ", "handoff: ", "service: ", "runevents: ", "access: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

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
