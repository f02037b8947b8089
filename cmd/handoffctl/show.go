package main

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
)

// show renders a text that may hold anything, so that it cannot upset a terminal or a table: quoted
// if it is empty, begins or ends with a space, or has a character that cannot be seen.
func show(text string) string {
	runes := []rune(text)
	odd := text == ""
	var quoted strings.Builder
	for i, r := range runes {
		switch {
		case isHidden(runes, i):
			odd = true
			escaped := strconv.QuoteRuneToASCII(r)
			quoted.WriteString(escaped[1 : len(escaped)-1])
		case r == '"' || r == '\\':
			quoted.WriteByte('\\')
			quoted.WriteRune(r)
		default:
			quoted.WriteRune(r)
		}
	}
	if odd {
		return `"` + quoted.String() + `"`
	}
	return text
}

// isHidden reports whether the character at i of a text cannot be seen there, or changes the
// direction of other ones. The console has the same rule, in its visible.js.
func isHidden(text []rune, i int) bool {
	switch r := text[i]; {
	case isBlank(r):
		return allBlank(text[:i]) || allBlank(text[i+1:])
	case !unicode.IsGraphic(r), unicode.In(r, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector):
		return !isNeeded(at(text, i-1), r, at(text, i+1))
	}
	return false
}

// isNeeded reports whether r is a joiner or a variation selector that a script or a picture needs.
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

// at returns the character at i of a text, -1 beyond it.
func at(text []rune, i int) rune {
	if i < 0 || i >= len(text) {
		return -1
	}
	return text[i]
}

// orDash is show, or a dash for "".
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return show(text)
}

const (
	maxShort  = 72 // how many characters of a payload a line of a terminal shows
	shownOfID = 8
)

// brief returns a payload for a table, cut to a line on a terminal.
func (a *app) brief(payload jsontext.Value) string {
	if !a.terminal {
		return string(payload)
	}
	return short(payload)
}

// short returns the beginning of a JSON text.
func short(payload jsontext.Value) string {
	if runes := []rune(string(payload)); len(runes) > maxShort {
		return string(runes[:maxShort-1]) + "…"
	}
	return string(payload)
}

// briefID returns an id for a table: on a terminal its beginning, which handoffctl accepts as an
// id.
func (a *app) briefID(id string) string {
	if a.terminal && len(id) > shownOfID {
		id = id[:shownOfID]
	}
	return orDash(id)
}
