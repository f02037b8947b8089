// Package collation compares strings as agents in JavaScript do with Intl.Collator and
// localeCompare: by the Unicode Collation Algorithm (UTS #10) with the CLDR root table, at tertiary
// strength, and without ignoring punctuation.
//
// All of it is safe for concurrent use.
package collation

import (
	"cmp"
	"slices"
	"sync"
)

// Compare returns -1, 0 or 1. Different strings may compare as equal.
func Compare(a, b string) int {
	if a == b {
		return 0
	}
	keys := pairs.Get().(*pair)
	defer pairs.Put(keys)
	keys.a, keys.b = AppendKey(keys.a[:0], a), AppendKey(keys.b[:0], b)
	return keys.a.Compare(keys.b)
}

type pair struct{ a, b Key }

var pairs = sync.Pool{New: func() any { return new(pair) }}

// Key has the collation elements of a string, by which strings compare, from the left.
type Key []element

// element has a weight for each level, the primary in the upper 32 bits, then the secondary and
// the tertiary in 16 each. A weight of 0 counts for nothing on its level.
type element uint64

// levels are the places and widths of the weights in an element.
var levels = [...]struct {
	shift int
	mask  element
}{{32, 1<<32 - 1}, {16, 1<<16 - 1}, {0, 1<<16 - 1}}

// Compare decides on the first level on which the two differ.
func (k Key) Compare(other Key) int {
	for len(k) > 0 && len(other) > 0 && k[0] == other[0] { // the same on every level
		k, other = k[1:], other[1:]
	}
	for _, level := range levels {
		a, b := k, other
		for {
			var x, y element
			for ; x == 0 && len(a) > 0; a = a[1:] {
				x = a[0] >> level.shift & level.mask
			}
			for ; y == 0 && len(b) > 0; b = b[1:] {
				y = b[0] >> level.shift & level.mask
			}
			if x != y {
				return cmp.Compare(x, y)
			}
			if x == 0 { // the end of both
				break
			}
		}
	}
	return 0
}

// AppendKey appends the key of s to key.
func AppendKey(key Key, s string) Key {
	r := readers.Get().(*reader)
	defer readers.Put(r)
	r.reset(s)
	for {
		c, ok := r.next()
		if !ok {
			return key
		}
		if r.mapping(c).contracts {
			key = append(key, r.longest(c)...)
		} else {
			key = r.appendElements(key, c)
		}
	}
}

// reader returns the code points of a string in NFD, one at a time. A code point of a combining
// class is a mark: in NFD, marks that follow each other are in the order of their classes.
type reader struct {
	*table
	text  []rune   // decomposed, but with its marks in their old order
	at    int      // the index in text behind marks
	marks [][]rune // the marks that come next, one slice for each class, in order
}

var readers = sync.Pool{New: func() any { return &reader{table: root()} }}

func (r *reader) reset(s string) {
	r.text, r.at, r.marks = r.text[:0], 0, r.marks[:0]
	for _, c := range s {
		r.text = r.appendDecomposed(r.text, c)
	}
	r.orderMarks()
}

// orderMarks moves the marks that come next in text to marks.
func (r *reader) orderMarks() {
	start := r.at
	for r.at < len(r.text) && r.mapping(r.text[r.at]).class > 0 {
		r.at++
	}
	if r.at == start {
		return
	}
	run := r.text[start:r.at]
	class := func(a, b rune) int { return cmp.Compare(r.mapping(a).class, r.mapping(b).class) }
	slices.SortStableFunc(run, class)
	for len(run) > 0 {
		n := 1
		for n < len(run) && class(run[0], run[n]) == 0 {
			n++
		}
		r.marks = append(r.marks, run[:n])
		run = run[n:]
	}
}

func (r *reader) next() (c rune, ok bool) {
	if len(r.marks) > 0 {
		return r.readMark(0), true
	}
	if r.at == len(r.text) {
		return 0, false
	}
	return r.readText(), true
}

// readText reads the next code point of text, if no marks come before it.
func (r *reader) readText() rune {
	c := r.text[r.at]
	r.at++
	r.orderMarks()
	return c
}

// readMark reads the first mark of the i-th class in marks.
func (r *reader) readMark(i int) rune {
	c := r.marks[i][0]
	if r.marks[i] = r.marks[i][1:]; len(r.marks[i]) == 0 {
		r.marks = slices.Delete(r.marks, i, i+1)
	}
	return c
}

// longest reads the longest contraction that begins with c (S2.1), and returns its elements. A mark
// behind other marks may belong to the contraction, unless a mark of its own class comes before it.
// So only the first mark of each class can belong. The table also has the beginnings of each
// contraction; in none of them does a code point that is no mark follow a mark.
func (r *reader) longest(c rune) []element {
	m := r.contractions[c]
	for len(r.marks) == 0 && r.at < len(r.text) {
		longer := m.next[r.text[r.at]]
		if longer == nil {
			return m.elements
		}
		m = longer
		r.readText()
	}
	for i := 0; i < len(r.marks); {
		longer := m.next[r.marks[i][0]]
		if longer == nil {
			i++
			continue
		}
		m = longer
		r.readMark(i)
	}
	return m.elements
}
