package collation

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate sh -c "node root.mjs > root.txt.gz"

// compressed is the table as README.md describes it.
//
//go:embed root.txt.gz
var compressed []byte

// root is the table, read when it is first needed.
var root = sync.OnceValue(read)

// read panics over a table that it cannot read: that is a broken build.
func read() *table {
	t := &table{decompositions: map[rune][]rune{}, contractions: map[rune]*contraction{}}
	file, err := gzip.NewReader(bytes.NewReader(compressed))
	check(err)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		t.add(lines.Text())
	}
	check(lines.Err())
	for c, alone := range t.contractions {
		alone.elements = t.appendElements(nil, c)
	}
	return t
}

type table struct {
	blocks         [0x110000 / blockSize]*[blockSize]mapping
	elements       []element
	contractions   map[rune]*contraction // by what they begin with
	decompositions map[rune][]rune
	unassigned     int     // the primary of an unassigned U+0000
	common         element // the secondary and the tertiary of most elements
	primary, code  int     // the end of the last run, while reading
}

const blockSize = 256

// mapping is the entry of one code point in the table.
type mapping struct {
	first, end uint32 // its elements
	class      uint8  // the rank of its combining class; 0 if it is no mark
	assigned   bool   // its elements are listed, even if none; else they are implicit
	contracts  bool   // a contraction begins with it
	decomposes bool
}

// contraction is the end of a contraction at a code point, and the code points that may come next.
type contraction struct {
	elements []element
	next     map[rune]*contraction
}

var nothing [blockSize]mapping

func (t *table) mapping(c rune) *mapping {
	if block := t.blocks[c/blockSize]; block != nil {
		return &block[c%blockSize]
	}
	return &nothing[0]
}

// set returns the mapping of a code point, which the caller may change.
func (t *table) set(c rune) *mapping {
	block := &t.blocks[c/blockSize]
	if *block == nil {
		*block = new([blockSize]mapping)
	}
	return &(*block)[c%blockSize]
}

// appendElements appends the elements of c alone.
func (t *table) appendElements(elements []element, c rune) []element {
	if m := t.mapping(c); m.assigned {
		return append(elements, t.elements[m.first:m.end]...)
	}
	return append(elements, element(t.unassigned+int(c))<<32|t.common)
}

// appendDecomposed appends the canonical decomposition of c.
func (t *table) appendDecomposed(text []rune, c rune) []rune {
	const ( // Hangul syllables: The Unicode Standard, section 3.12
		sBase, lBase, vBase, tBase = 0xAC00, 0x1100, 0x1161, 0x11A7
		lCount, vCount, tCount     = 19, 21, 28
	)
	if s := c - sBase; 0 <= s && s < lCount*vCount*tCount {
		text = append(text, lBase+s/(vCount*tCount), vBase+s/tCount%vCount)
		if s%tCount != 0 {
			text = append(text, tBase+s%tCount)
		}
		return text
	}
	if t.mapping(c).decomposes {
		return append(text, t.decompositions[c]...)
	}
	return append(text, c)
}

// add reads a line.
func (t *table) add(line string) {
	kind, rest, _ := strings.Cut(line, " ")
	fields := strings.Fields(rest)
	switch kind {
	case "#":
	case "unassigned":
		t.unassigned = number(fields[0], 10)
		t.common = element(number(fields[1], 10)<<16 | number(fields[2], 10))
	case "run":
		t.primary += number(fields[0], 10)
		t.code += number(fields[1], 10)
		for range number(fields[2], 10) {
			t.assign(rune(t.code), element(t.primary)<<32|t.common)
			t.primary++
			t.code++
		}
	case "map":
		colon := slices.Index(fields, ":")
		var elements []element
		for _, field := range fields[colon+1:] {
			weights := strings.Split(field, ".")
			elements = append(elements, element(number(weights[0], 10)<<32|
				number(weights[1], 10)<<16|number(weights[2], 10)))
		}
		if text := runes(fields[:colon]); len(text) == 1 {
			t.assign(text[0], elements...)
		} else {
			t.contract(text, elements)
		}
	case "nfd":
		text := runes(fields)
		t.set(text[0]).decomposes = true
		t.decompositions[text[0]] = text[1:]
	case "class":
		class := uint8(number(fields[0], 10))
		for _, c := range runes(fields[1:]) {
			t.set(c).class = class
		}
	default:
		panic("root.txt: " + line)
	}
}

func (t *table) assign(c rune, elements ...element) {
	m := t.set(c)
	m.assigned = true
	m.first = uint32(len(t.elements))
	t.elements = append(t.elements, elements...)
	m.end = uint32(len(t.elements))
}

func (t *table) contract(text []rune, elements []element) {
	t.set(text[0]).contracts = true
	at := &contraction{next: t.contractions}
	for _, c := range text {
		if at.next == nil {
			at.next = map[rune]*contraction{}
		}
		if at.next[c] == nil {
			at.next[c] = &contraction{}
		}
		at = at.next[c]
	}
	at.elements = elements
}

func number(s string, base int) int {
	n, err := strconv.ParseInt(s, base, 64)
	check(err)
	return int(n)
}

func runes(fields []string) []rune {
	text := make([]rune, len(fields))
	for i, field := range fields {
		text[i] = rune(number(field, 16))
	}
	return text
}

func check(err error) {
	if err != nil {
		panic("root.txt: " + err.Error())
	}
}
