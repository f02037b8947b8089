package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// node is a JSON value as it is written: it keeps the order of members, two members of one name, and
// texts that are no JSON at all.
type node struct {
	text  string        // unless it is an object or an array
	kind  jsontext.Kind // '{' or '[', or 0
	parts []part
}

// part is a member of an object, with its name as it is written, or an item of an array.
type part struct {
	name  string
	value *node
}

// nodeOf reads a valid payload.
func nodeOf(t testing.TB, data []byte) *node {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(data))
	text := func() string {
		value, err := d.ReadValue()
		require.NoError(t, err)
		return string(value)
	}
	var read func() *node
	read = func() *node {
		n := &node{kind: d.PeekKind()}
		if n.kind != '{' && n.kind != '[' {
			return &node{text: text()}
		}
		_, err := d.ReadToken()
		require.NoError(t, err)
		for d.PeekKind() != '}' && d.PeekKind() != ']' {
			p := part{}
			if n.kind == '{' {
				p.name = text()
			}
			p.value = read()
			n.parts = append(n.parts, p)
		}
		_, err = d.ReadToken()
		require.NoError(t, err)
		return n
	}
	return read()
}

func (n *node) String() string {
	var parts []string
	for _, p := range n.parts {
		text := p.value.String()
		if n.kind == '{' {
			text = p.name + ":" + text
		}
		parts = append(parts, text)
	}
	switch n.kind {
	case '{':
		return "{" + strings.Join(parts, ",") + "}"
	case '[':
		return "[" + strings.Join(parts, ",") + "]"
	}
	return n.text
}

// resolves reports whether a JSON Pointer leads to a value of tree, or to a member that an object of it
// lacks.
func resolves(tree any, pointer string) bool {
	missing, valid := false, jsontext.Pointer(pointer).IsValid()
	for token := range jsontext.Pointer(pointer).Tokens() {
		switch v := tree.(type) {
		case map[string]any:
			next, ok := v[token]
			valid, missing, tree = valid && !missing, !ok, next
		case []any:
			at, err := strconv.Atoi(token)
			if err != nil || at < 0 || at >= len(v) {
				return false
			}
			tree = v[at]
		default:
			return false
		}
	}
	return valid
}

// documents are the JSON Schemas, compiled without any code of the product: they say what there is to
// mutate, and judge what may be accepted.
type documents map[schemas.Name]*jsonschema.Schema

func readDocuments(t testing.TB) documents {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.LoadURL = func(url string) (io.ReadCloser, error) {
		return nil, fmt.Errorf("not embedded: %s", url)
	}
	url := func(name schemas.Name) string {
		return "https://worldengine.example/schemas/" + string(name) + ".schema.json"
	}
	for _, name := range schemas.Names() {
		source, err := schemas.Source(name)
		require.NoError(t, err)
		require.NoError(t, c.AddResource(url(name), bytes.NewReader(source)))
	}
	d := documents{}
	for _, name := range schemas.Names() {
		d[name] = c.MustCompile(url(name))
	}
	return d
}

// mayBe reports whether data can be a payload of the schema: if not, the server has to refuse it.
func (d documents) mayBe(name schemas.Name, data []byte) (tree any, ok bool) {
	if json.Unmarshal(data, &tree) != nil {
		return nil, false
	}
	return tree, d[name].Validate(tree) == nil
}

// site is a place in a payload, with its rules in the schemas.
type site struct {
	at    *node
	rules []*jsonschema.Schema
}

// sites returns all places of a value with these rules.
func sites(n *node, rules ...*jsonschema.Schema) []site {
	for i := 0; i < len(rules); i++ { // it grows
		r := rules[i]
		rules = append(rules, r.AllOf...)
		for _, more := range []*jsonschema.Schema{r.Ref, r.Then} {
			if more != nil {
				rules = append(rules, more)
			}
		}
	}
	list := []site{{n, rules}}
	for _, p := range n.parts {
		var below []*jsonschema.Schema
		for _, r := range rules {
			sub := r.Properties[strings.Trim(p.name, `"`)]
			if n.kind == '[' {
				sub = r.Items2020
			}
			if sub != nil {
				below = append(below, sub)
			}
		}
		list = append(list, sites(p.value, below...)...)
	}
	return list
}

// mutator makes mutants of valid payloads: by meaning, along their JSON Schema, and by byte.
type mutator struct {
	g    *rand.Rand
	docs documents
	// ids are ids, hashes and names that mean something to the server, but elsewhere.
	ids []string
}

// maxMutations is how often a payload is changed at most.
const maxMutations = 3

// mutant returns a changed payload, and its changes in words.
func (m *mutator) mutant(name schemas.Name, root *node) (data []byte, how string) {
	var done []string
	for range 1 + m.g.IntN(maxMutations) {
		if m.g.IntN(12) == 0 {
			data, how := m.mutateBytes([]byte(root.String()))
			return data, strings.Join(append(done, how), ", ")
		}
		done = append(done, m.change(pick(m.g, sites(root, m.docs[name]))))
	}
	return []byte(root.String()), strings.Join(done, ", ")
}

// change changes one place.
func (m *mutator) change(s site) string {
	if s.at.kind == '{' && len(s.at.parts) > 0 && m.g.IntN(2) == 0 {
		return m.changeMembers(s.at)
	}
	if values := m.edgeValues(s.rules); len(values) > 0 && m.g.IntN(2) == 0 {
		return m.write(s.at, pick(m.g, values))
	}
	switch {
	case s.at.kind == '[' && m.g.IntN(2) == 0:
		return m.changeItems(s.at)
	case strings.HasPrefix(s.at.text, `"`):
		return m.write(s.at, m.mutateText(s.at.text))
	case s.at.text != "" && s.at.text[0] <= '9':
		return m.write(s.at, pick(m.g, numbers))
	}
	return m.write(s.at, pick(m.g, otherTypes))
}

func (m *mutator) write(n *node, text string) string {
	before := n.String()
	*n = node{text: text}
	return fmt.Sprintf("%.40s becomes %.60s", before, text)
}

// changeMembers drops, doubles, renames, moves, changes or adds a member.
func (m *mutator) changeMembers(n *node) string {
	i := m.g.IntN(len(n.parts))
	at, other := n.parts[i], &node{text: pick(m.g, otherTypes)}
	switch m.g.IntN(7) {
	case 0:
		n.parts = slices.Delete(n.parts, i, i+1)
		return "without " + at.name
	case 1:
		n.parts = append(n.parts, at)
		return "twice " + at.name
	case 2: // spelled otherwise, with another value
		n.parts = append(n.parts, part{fmt.Sprintf(`"\u%04x%s`, at.name[1], at.name[2:]), other})
		return "twice, escaped, " + at.name
	case 3:
		n.parts[i].name = pick(m.g, []string{
			strings.ToUpper(at.name), at.name[:len(at.name)-1] + `s"`, `" ` + at.name[1:], `""`,
			`"\u0000"`, `"~/~0"`,
		})
		return at.name + " renamed " + n.parts[i].name
	case 4:
		names := []string{`"__proto__"`, `"extra"`, `""`, `"a/b~c"`, `"` + strings.Repeat("n", 2000) + `"`}
		n.parts = append(n.parts, part{pick(m.g, names), other})
		return "one more member"
	case 5:
		m.g.Shuffle(len(n.parts), func(i, j int) { n.parts[i], n.parts[j] = n.parts[j], n.parts[i] })
		return "in another order"
	default:
		return m.write(at.value, other.text)
	}
}

// changeItems makes an array longer, up to beyond what any schema allows, or shorter.
func (m *mutator) changeItems(n *node) string {
	if len(n.parts) == 0 {
		n.parts = append(n.parts, part{value: &node{text: pick(m.g, otherTypes)}})
		return "an item"
	}
	if m.g.IntN(3) == 0 {
		n.parts = n.parts[:m.g.IntN(len(n.parts))]
		return "fewer items"
	}
	for size := pick(m.g, []int{2, 99, 100, 101, 256, 257}); len(n.parts) < size; {
		n.parts = append(n.parts, pick(m.g, n.parts))
	}
	return fmt.Sprint(len(n.parts), " items")
}

// edgeValues returns values at the edges of rules.
func (m *mutator) edgeValues(rules []*jsonschema.Schema) (values []string) {
	for _, r := range rules {
		for _, edge := range []*big.Rat{r.Minimum, r.Maximum} {
			if edge == nil {
				continue
			}
			bound, _ := edge.Float64()
			for _, v := range []float64{bound - 1, bound, bound + 1, bound - 0.5, bound + 0.5, bound - 1e-9} {
				values = append(values, strconv.FormatFloat(v, 'f', -1, 64))
			}
		}
		for _, option := range append(r.Enum, r.Constant...) {
			if text, ok := option.(string); ok {
				values = append(values, strconv.Quote(text), strconv.Quote(strings.ToUpper(text)),
					strconv.Quote(text+" "))
			}
		}
		if r.Pattern != nil && strings.Contains(r.Pattern.String(), "[0-9a-f]") {
			values = append(values, strconv.Quote(pick(m.g, m.ids)), `"`+strings.Repeat("0", 64)+`"`)
		}
	}
	return values
}

// mutateText changes a text, which is written with its quotes.
func (m *mutator) mutateText(text string) string {
	inner := text[1 : len(text)-1]
	switch m.g.IntN(6) {
	case 0:
		return `"` + pick(m.g, hardTexts) + `"`
	case 1:
		return `"` + inner + pick(m.g, hardTexts) + `"`
	case 2:
		return strconv.Quote(pick(m.g, m.ids))
	case 3:
		return `"` + strings.ToUpper(inner) + `"`
	case 4:
		return `"` + inner[:m.g.IntN(len(inner)+1)] + `"`
	default:
		return `"` + strings.Repeat(inner+"x", 1+m.g.IntN(min(300, 1+1<<20/(len(inner)+1)))) + `"`
	}
}

// mutateBytes changes a payload without regard to its meaning.
func (m *mutator) mutateBytes(data []byte) ([]byte, string) {
	at := m.g.IntN(len(data) + 1)
	switch m.g.IntN(8) {
	case 0:
		return data[:at], "cut off"
	case 1:
		return append(data, pick(m.g, []string{"{}", "\x00", "]", " \t\r\n", "//", "\ufeff",
			string(data)})...), "bytes behind it"
	case 2:
		return append([]byte("\ufeff"), data...), "a byte order mark"
	case 3:
		depth := pick(m.g, []int{1, 31, 32, 33, 10_000})
		return slices.Concat([]byte(strings.Repeat("[", depth)), data,
			[]byte(strings.Repeat("]", depth))), "nested"
	case 4:
		return slices.Insert(data, at, byte(m.g.UintN(256))), "a byte more"
	case 5:
		if at < len(data) {
			return slices.Delete(data, at, at+1), "a byte less"
		}
		return nil, "nothing"
	default:
		for range 1 + m.g.IntN(4) {
			data[m.g.IntN(len(data))] ^= 1 << m.g.UintN(8)
		}
		return data, "bits flipped"
	}
}

// numbers are written as they are.
var numbers = []string{
	"-0", "0", "-1", "0.5", "1.5e1", "1e400", "-1e400", "1e-400", "9007199254740991", "9007199254740992",
	"9007199254740993", "1" + strings.Repeat("0", 300), strings.Repeat("9", 5000), "0." + strings.Repeat("1", 5000),
	"1.0", "1e0", "10E+1", "01", "+1", "1.", ".5", "0x10", "NaN", "Infinity", "2147483648", "4294967296", "1e19", "1e21",
}

var otherTypes = []string{
	"null", "true", "false", "0", "1", `""`, `"7"`, "[]", "{}", "[null]", `{"a":{"b":[]}}`, "-", "undefined", "'a'",
	strings.Repeat("[", 40) + strings.Repeat("]", 40), strings.Repeat(`{"a":`, 31) + "1" + strings.Repeat("}", 31),
}

// hardTexts are written as they are between quotes.
var hardTexts = []string{
	"", " ", `\ud800`, `\udc00\ud800`, `\ud83d\ude00`, "\xff\xfe", "\xc0\xaf", "\xed\xa0\x80", `\u0000`, "\x00", "\n",
	"\x7f", "\u202eabc", "\u00e9", "e\u0301", "\ufeff", "%00", "%2E%2E", "..", ".", "*", ">", "a.b", "a b", "=", "\\",
	`\\`, `\/`, `\x`, "$JS.API", "|", "a|b", "'; DROP TABLE towns;--", "${jndi:x}", "../../etc/passwd",
	strings.Repeat("\U0001f600", 300), strings.Repeat("%", 129), strings.Repeat("a", 128), strings.Repeat("a", 129),
	strings.Repeat("l", 70_000), "2026-02-31T10:00:00Z", "2026-02-16T10:00:00.1234567890123Z", "0000-01-01T00:00:00Z",
	"9999-12-31T23:59:59Z",
}

func pick[T any](g *rand.Rand, list []T) T { return list[g.IntN(len(list))] }
