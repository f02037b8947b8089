package server_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// node is a JSON value that keeps more than a tree of Go values: the order of members, two
// members of one name, and texts that are no JSON at all.
type node struct {
	text    string // of a value that is neither object nor array, as it is written
	array   bool
	members []member // of an object, or with array the items
}

// member is a member of an object, whose name is written as it is, or an item of an array.
type member struct {
	name  string
	value *node
}

func (n *node) isObject() bool { return n.text == "" && !n.array }

// nodeOf reads a valid payload.
func nodeOf(t testing.TB, data []byte) *node {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	text := func(token json.Token) string {
		data, err := json.Marshal(token)
		require.NoError(t, err)
		return string(data)
	}
	var value func() *node
	value = func() *node {
		token, err := dec.Token()
		require.NoError(t, err)
		switch v := token.(type) {
		case json.Delim:
			n := &node{array: v == '['}
			for dec.More() {
				m := member{}
				if !n.array {
					name, err := dec.Token()
					require.NoError(t, err)
					m.name = text(name)
				}
				m.value = value()
				n.members = append(n.members, m)
			}
			_, err := dec.Token()
			require.NoError(t, err)
			return n
		case json.Number:
			return &node{text: v.String()}
		default:
			return &node{text: text(v)}
		}
	}
	return value()
}

func (n *node) clone() *node {
	c := *n
	c.members = slices.Clone(n.members)
	for i := range c.members {
		c.members[i].value = c.members[i].value.clone()
	}
	return &c
}

func (n *node) String() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

func (n *node) write(b *strings.Builder) {
	if n.text != "" {
		b.WriteString(n.text)
		return
	}
	open, end := byte('{'), byte('}')
	if n.array {
		open, end = '[', ']'
	}
	b.WriteByte(open)
	for i, m := range n.members {
		if i > 0 {
			b.WriteByte(',')
		}
		if !n.array {
			b.WriteString(m.name + ":")
		}
		m.value.write(b)
	}
	b.WriteByte(end)
}

// resolves says whether a JSON Pointer leads to a value of tree, or to a member that an object or
// array of it lacks.
func resolves(tree any, pointer string) bool {
	if pointer == "" {
		return true
	}
	parts := strings.Split(pointer, "/")
	if parts[0] != "" {
		return false
	}
	for i, part := range parts[1:] {
		last := i == len(parts)-2
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(part), "~") {
			return false
		}
		switch v := tree.(type) {
		case map[string]any:
			next, ok := v[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
			if !ok {
				return last
			}
			tree = next
		case []any:
			at, err := strconv.Atoi(part)
			if err != nil || at < 0 || at >= len(v) {
				return false
			}
			tree = v[at]
		default:
			return false
		}
	}
	return true
}
