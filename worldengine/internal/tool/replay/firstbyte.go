package replay

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// ByteDifference is the first difference between the bytes of two results.
type ByteDifference struct {
	Offset int `json:"offset"`
	// Expected and Got are the bytes around it, as text.
	Expected string `json:"expected"`
	Got      string `json:"got"`
	caret    int    // columns before the difference
}

// contextBytes is how many bytes are shown on either side of a difference.
const contextBytes = 30

// newFirstByte returns the first difference; nil if there is none.
func newFirstByte(expected, got string) *ByteDifference {
	at := 0
	for at < len(expected) && at < len(got) && expected[at] == got[at] {
		at++
	}
	if at == len(expected) && at == len(got) {
		return nil
	}
	before, _ := excerpt(expected, at)
	d := &ByteDifference{Offset: at, caret: utf8.RuneCountInString(before)}
	_, d.Expected = excerpt(expected, at)
	_, d.Got = excerpt(got, at)
	return d
}

// excerpt returns the bytes before a place in a text, and the bytes around it, as printable text on one line.
// … stands for more.
func excerpt(text string, at int) (before, all string) {
	from, to := max(at-contextBytes, 0), min(at+contextBytes, len(text))
	if from > 0 {
		before = "…"
	}
	before += printable(text[from:at])
	all = before + printable(text[at:to])
	switch {
	case at == len(text):
		all += "(the end)"
	case to < len(text):
		all += "…"
	}
	return before, all
}

// printable escapes characters that would not show, and bytes that are part of a character.
func printable(text string) string {
	quoted := strconv.QuoteToASCII(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Lines renders the difference; none for nil.
func (d *ByteDifference) Lines() []string {
	if d == nil {
		return nil
	}
	return []string{
		"the results differ from byte " + strconv.Itoa(d.Offset) + ":",
		"  expected " + d.Expected,
		"  got      " + d.Got,
		"           " + strings.Repeat(" ", d.caret) + "^",
	}
}
