package collation

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

var comparisons = flag.String("comparisons", "../../testdata/collation.json",
	"the output of collation.mjs beside that")

// oracle has the order of Node.js: the texts of one line of a sorted list compare as equal.
type oracle struct {
	Sorted  map[string][][]string
	Pairs   [][3]any
	Skipped int // strings that Node.js itself compares wrongly: see collation.mjs
}

func node(tb testing.TB) (o oracle) {
	tb.Helper()
	data, err := os.ReadFile(*comparisons)
	require.NoError(tb, err)
	require.NoError(tb, json.Unmarshal(data, &o))
	require.NotEmpty(tb, o.Sorted)
	require.NotEmpty(tb, o.Pairs)
	require.LessOrEqual(tb, o.Skipped, len(o.Pairs)/10_000)
	return o
}

// strings returns all strings of the oracle.
func (o oracle) strings() []string {
	var all []string
	for _, list := range o.Sorted {
		all = append(all, slices.Concat(list...)...)
	}
	for _, pair := range o.Pairs {
		all = append(all, pair[0].(string), pair[1].(string))
	}
	return all
}

func TestKey_SortedLists(t *testing.T) {
	t.Parallel()
	for name, list := range node(t).Sorted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := make([]Key, len(list))
			for i, line := range list {
				keys[i] = AppendKey(nil, line[0])
				for _, s := range line[1:] {
					require.Zero(t, Compare(line[0], s), "%+q, %+q", line[0], s)
				}
			}
			for i := range keys {
				for j := range keys {
					if want := min(max(i-j, -1), 1); keys[i].Compare(keys[j]) != want {
						require.Equal(t, want, keys[i].Compare(keys[j]), "%+q, %+q",
							list[i], list[j])
					}
				}
			}
		})
	}
}

func TestCompare_Pairs(t *testing.T) {
	t.Parallel()
	wrong, pairs := 0, node(t).Pairs
	for _, pair := range pairs {
		a, b, want := pair[0].(string), pair[1].(string), int(pair[2].(float64))
		if got, back := Compare(a, b), Compare(b, a); got != want || back != -want {
			if wrong++; wrong <= 20 {
				t.Errorf("%+q, %+q: %d and %d, in Node.js %d", a, b, got, back, want)
			}
		}
	}
	t.Logf("%d of %d pairs differ", wrong, len(pairs))
}

// known has the code points of the tables of Go.
var known = []*unicode.RangeTable{
	unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc,
	unicode.Cf, unicode.Co,
}

// For the code points in Go's tables our NFD is the library's, and canonically equivalent strings
// have the same key.
func TestReader_NFD(t *testing.T) {
	t.Parallel()
	all := node(t).strings()
	for c := range rune(0x110000) {
		all = append(all, string(c)) // a surrogate becomes U+FFFD
	}
	for _, s := range all {
		if strings.ContainsFunc(s, func(c rune) bool { return !unicode.In(c, known...) }) {
			continue
		}
		r := &reader{table: root()}
		r.reset(s)
		var text []rune
		for c, ok := r.next(); ok; c, ok = r.next() {
			text = append(text, c)
		}
		if want := norm.NFD.String(s); string(text) != want || Compare(s, want) != 0 ||
			Compare(s, norm.NFC.String(s)) != 0 {
			require.Equal(t, want, string(text), "%+q", s)
			require.Fail(t, "its forms compare as different", "%+q", s)
		}
	}
}

func TestAppendKey(t *testing.T) {
	t.Parallel()
	key := AppendKey(nil, "a")
	require.Equal(t, AppendKey(nil, "ab"), AppendKey(key, "b"))
	require.Empty(t, AppendKey(nil, ""))
	require.Zero(t, Compare("", "\x00\u200d"))
	require.Equal(t, AppendKey(nil, "\ufffd"), AppendKey(nil, "\xff"), "invalid UTF-8")
}

// Each of these marks would be looked at once for each mark before it, if blocked marks were not
// skipped at once.
func TestAppendKey_LongRunsOfMarks(t *testing.T) {
	t.Parallel()
	const n = 100_000
	first, second := "\u0f71", "\u0f72" // together a contraction
	key := AppendKey(nil, strings.Repeat(second+first, n))
	require.Len(t, key, n)
	one := AppendKey(nil, first+second)
	require.Len(t, one, 1)
	for _, e := range key {
		require.Equal(t, one[0], e)
	}
}
