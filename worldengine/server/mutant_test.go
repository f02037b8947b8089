package server_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"worldengine/schemas"
)

// mutator makes mutants of valid payloads: by meaning, along their JSON Schema, and by byte.
type mutator struct {
	g    *rand.Rand
	docs *documents
	// ids are ids, hashes and names that mean something to the server, but elsewhere.
	ids []string
}

// maxMutations is how often a payload is changed at most.
const maxMutations = 3

// mutant returns a changed payload, and its changes in words.
func (m *mutator) mutant(name schemas.Name, valid *node) (data []byte, how string) {
	root := valid.clone()
	var done []string
	for range 1 + m.g.IntN(maxMutations) {
		if m.g.IntN(12) == 0 {
			data, how := m.ofBytes([]byte(root.String()))
			return data, strings.Join(append(done, how), ", ")
		}
		s := pick(m.g, m.docs.sites(name, root))
		done = append(done, m.change(root, &s))
	}
	return []byte(root.String()), strings.Join(done, ", ")
}

// change changes one place.
func (m *mutator) change(root *node, s *site) string {
	if s.at.isObject() && len(s.at.members) > 0 && m.g.IntN(2) == 0 {
		return m.changeMembers(s.at)
	}
	if values := m.byRule(s); len(values) > 0 && m.g.IntN(2) == 0 {
		return m.write(s.at, pick(m.g, values))
	}
	switch {
	case s.at.array && m.g.IntN(2) == 0:
		return m.changeItems(s.at)
	case strings.HasPrefix(s.at.text, `"`):
		return m.write(s.at, m.ofText(s.at.text))
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

// changeMembers drops, doubles, renames or adds a member.
func (m *mutator) changeMembers(n *node) string {
	i := m.g.IntN(len(n.members))
	at := n.members[i]
	switch m.g.IntN(7) {
	case 0:
		n.members = slices.Delete(n.members, i, i+1)
		return "without " + at.name
	case 1:
		n.members = append(n.members, member{at.name, at.value.clone()})
		return "twice " + at.name
	case 2: // spelled otherwise, with another value
		escaped := fmt.Sprintf(`"\u%04x%s`, at.name[1], at.name[2:])
		n.members = append(n.members, member{escaped, &node{text: pick(m.g, otherTypes)}})
		return "twice, escaped, " + at.name
	case 3:
		n.members[i].name = pick(m.g, []string{
			strings.ToUpper(at.name), at.name[:len(at.name)-1] + `s"`, `" ` + at.name[1:], `""`,
			`"\u0000"`, `"~/~0"`,
		})
		return at.name + " renamed " + n.members[i].name
	case 4:
		n.members = append(n.members,
			member{pick(m.g, []string{`"__proto__"`, `"extra"`, `""`, `"a/b~c"`, `"` +
				strings.Repeat("n", 2000) + `"`}), &node{text: pick(m.g, otherTypes)}})
		return "one more member"
	case 5:
		m.g.Shuffle(len(n.members), func(i, j int) {
			n.members[i], n.members[j] = n.members[j],
				n.members[i]
		})
		return "in another order"
	default:
		return m.write(at.value, pick(m.g, otherTypes))
	}
}

// changeItems makes an array longer, up to beyond what any schema allows, or shorter.
func (m *mutator) changeItems(n *node) string {
	if len(n.members) == 0 {
		n.members = append(n.members, member{value: &node{text: pick(m.g, otherTypes)}})
		return "an item"
	}
	if m.g.IntN(3) == 0 {
		n.members = n.members[:m.g.IntN(len(n.members))]
		return "fewer items"
	}
	for size := pick(m.g, []int{2, 99, 100, 101, 256, 257}); len(n.members) < size; {
		n.members = append(n.members, member{value: pick(m.g, n.members).value.clone()})
	}
	return fmt.Sprint(len(n.members), " items")
}

// byRule returns values at the edges of the schema of a place.
func (m *mutator) byRule(s *site) (values []string) {
	for _, r := range s.rules {
		for _, keyword := range []string{"minimum", "maximum"} {
			if bound, ok := r[keyword].(float64); ok {
				for _, v := range []float64{bound - 1, bound, bound + 1, bound - 0.5, bound + 0.5,
					bound - 1e-9} {
					values = append(values, strconv.FormatFloat(v, 'f', -1, 64))
				}
			}
		}
		options, _ := r["enum"].([]any)
		if only, ok := r["const"]; ok {
			options = append(options, only)
		}
		for _, option := range options {
			if text, ok := option.(string); ok {
				values = append(values, strconv.Quote(text), strconv.Quote(strings.ToUpper(text)),
					strconv.Quote(text+" "))
			}
		}
		if pattern, ok := r["pattern"].(string); ok && strings.Contains(pattern, "[0-9a-f]") {
			values = append(values, strconv.Quote(pick(m.g, m.ids)),
				`"`+strings.Repeat("0", 64)+`"`)
		}
	}
	return values
}

// ofText changes a text, which is written with its quotes.
func (m *mutator) ofText(text string) string {
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

// ofBytes changes a payload without regard to its meaning.
func (m *mutator) ofBytes(data []byte) ([]byte, string) {
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
	"-0", "0", "-1", "0.5", "1.5e1", "1e400", "-1e400", "1e-400", "9007199254740991",
	"9007199254740992",
	"9007199254740993", "1" + strings.Repeat("0", 300), strings.Repeat("9", 5000),
	"0." + strings.Repeat("1", 5000),
	"1.0", "1e0", "10E+1", "01", "+1", "1.", ".5", "0x10", "NaN", "Infinity", "2147483648",
	"4294967296", "1e19", "1e21",
}

var otherTypes = []string{
	"null", "true", "false", "0", "1", `""`, `"7"`, "[]", "{}", "[null]", `{"a":{"b":[]}}`, "-",
	"undefined", "'a'",
	strings.Repeat("[", 40) + strings.Repeat("]", 40), strings.Repeat(`{"a":`, 31) + "1" +
		strings.Repeat("}", 31),
}

// hardTexts are written as they are between quotes.
var hardTexts = []string{
	"", " ", `\ud800`, `\udc00\ud800`, `\ud83d\ude00`, "\xff\xfe", "\xc0\xaf", "\xed\xa0\x80",
	`\u0000`, "\x00", "\n", "\x7f",
	"\u202eabc", "\u00e9", "e\u0301", "\ufeff", "%00", "%2E%2E", "..", ".", "*", ">", "a.b", "a b",
	"=", "\\", `\\`, `\/`, `\x`,
	"$JS.API", "|", "a|b", "'; DROP TABLE towns;--", "${jndi:x}", "../../etc/passwd",
	strings.Repeat("\U0001f600", 300),
	strings.Repeat("%", 129), strings.Repeat("a", 128), strings.Repeat("a", 129),
	strings.Repeat("l", 70_000),
	"2026-02-31T10:00:00Z", "2026-02-16T10:00:00.1234567890123Z", "0000-01-01T00:00:00Z",
	"9999-12-31T23:59:59Z",
}

func pick[T any](g *rand.Rand, list []T) T { return list[g.IntN(len(list))] }
