// Package termtext shows texts that may hold anything to a person at a terminal.
package termtext

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Text renders a text that may hold anything, so that it cannot upset a terminal or a table: quoted
// in ASCII if it is empty, begins or ends with a space, or has a character that cannot be seen.
func Text(text string) string {
	runes, odd := []rune(text), text == ""
	for i := range runes {
		odd = odd || isHidden(runes, i)
	}
	if odd {
		return strconv.QuoteToASCII(text)
	}
	return text
}

// isHidden reports whether the character at i of a text cannot be seen there, or changes the
// direction of other characters. The console has the same rule, in its visible.js.
func isHidden(text []rune, i int) bool {
	switch r := text[i]; {
	case isBlank(r):
		return allBlank(text[:i]) || allBlank(text[i+1:])
	case !unicode.IsGraphic(r), unicode.In(r, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector):
		return !isNeeded(runeAt(text, i-1), r, runeAt(text, i+1))
	}
	return false
}

// isNeeded reports whether r is a joiner or a variation selector that the characters beside it
// need.
func isNeeded(before, r, after rune) bool {
	joiner := r == 0x200c || r == 0x200d
	switch {
	case joiner && unicode.In(before, shaped...) && unicode.In(after, shaped...):
		return true
	case r == 0x200d:
		tone := before >= 0x1f3fb && before <= 0x1f3ff
		return (isPicture(before) || before == 0xfe0f || tone) && isPicture(after)
	case r == 0xfe0e || r == 0xfe0f:
		key := strings.ContainsRune("0123456789#*", before)
		return isPicture(before) || r == 0xfe0f && key && after == 0x20e3
	}
	return false
}

// shaped are the scripts whose letters the joiners U+200C and U+200D shape.
var shaped = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Devanagari, unicode.Bengali,
	unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu,
	unicode.Kannada, unicode.Malayalam, unicode.Sinhala,
}

func isPicture(r rune) bool { return unicode.Is(unicode.So, r) || r == '↔' || r == '↕' }

func isBlank(r rune) bool { return unicode.Is(unicode.Zs, r) || r == 0x2800 }

func allBlank(text []rune) bool {
	return !slices.ContainsFunc(text, func(r rune) bool { return !isBlank(r) })
}

// runeAt returns the character at i of a text, -1 beyond it.
func runeAt(text []rune, i int) rune {
	if i < 0 || i >= len(text) {
		return -1
	}
	return text[i]
}

// maxShort is how many characters Short leaves.
const maxShort = 72

// Short returns a text, cut to the width of a terminal.
func Short(text string) string {
	if runes := []rune(text); len(runes) > maxShort {
		return string(runes[:maxShort-1]) + "…"
	}
	return text
}

// Change returns the old and the new value of a difference; either may be missing.
func Change(before, after []byte) string {
	return Text(cmp.Or(string(before), "none")) + " -> " + Text(cmp.Or(string(after), "none"))
}
