package collation

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"sync"

	"github.com/go-json-experiment/json"
)

//go:generate sh -c "node root.mjs > root.json.gz"

// compressed is a source.
//
//go:embed root.json.gz
var compressed []byte

// source is the table as README.md describes it.
type source struct {
	Unassigned element  `json:"unassigned"`
	Runs       [][3]int `json:"runs"`
	Mappings   []struct {
		Text     []rune    `json:"text"`
		Elements []element `json:"elements"`
	} `json:"mappings"`
	Decompositions [][]rune `json:"decompositions"`
	Classes        [][]rune `json:"classes"`
}

// root is the table, read when it is first needed.
var root = sync.OnceValue(read)

// read panics over a table that it cannot read: that is a broken build.
func read() *table {
	file, err := gzip.NewReader(bytes.NewReader(compressed))
	check(err)
	var s source
	check(json.UnmarshalRead(file, &s))
	t := &table{
		contractions: map[rune]*contraction{}, decompositions: map[rune][]rune{},
		unassigned: s.Unassigned,
	}
	primary, code := 0, 0 // the end of the last run
	for _, run := range s.Runs {
		primary, code = primary+run[0], code+run[1]
		for range run[2] {
			t.assign(rune(code), element(primary)<<32|s.Unassigned&(1<<32-1))
			primary, code = primary+1, code+1
		}
	}
	for _, m := range s.Mappings {
		if len(m.Text) == 1 {
			t.assign(m.Text[0], m.Elements...)
		} else {
			t.contract(m.Text, m.Elements)
		}
	}
	for c, alone := range t.contractions {
		alone.elements = t.appendElements(nil, c)
	}
	for _, text := range s.Decompositions {
		t.set(text[0]).decomposes = true
		t.decompositions[text[0]] = text[1:]
	}
	for i, marks := range s.Classes {
		for _, c := range marks {
			t.set(c).class = uint8(i + 1)
		}
	}
	return t
}

type table struct {
	blocks         [0x110000 / blockSize]*[blockSize]mapping
	elements       []element
	contractions   map[rune]*contraction // by what they begin with
	decompositions map[rune][]rune
	unassigned     element // of an unassigned U+0000
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
	return append(elements, t.unassigned+element(c)<<32)
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

func check(err error) {
	if err != nil {
		panic("root.json: " + err.Error())
	}
}
