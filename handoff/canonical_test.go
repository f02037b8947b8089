package handoff_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/quick"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// CI draws more: see .ci/run.
var drawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried if that takes long")

func canonical(tree any) string { return string(handoff.AppendCanonical(nil, tree)) }

// TestAppendNumber_RFC8785 is appendix B of the RFC.
func TestAppendNumber_RFC8785(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		bits uint64
		want string
	}{
		{0x0000000000000000, "0"},
		{0x8000000000000000, "0"},
		{0x0000000000000001, "5e-324"},
		{0x8000000000000001, "-5e-324"},
		{0x7fefffffffffffff, "1.7976931348623157e+308"},
		{0xffefffffffffffff, "-1.7976931348623157e+308"},
		{0x4340000000000000, "9007199254740992"},
		{0xc340000000000000, "-9007199254740992"},
		{0x4430000000000000, "295147905179352830000"},
		{0x44b52d02c7e14af5, "9.999999999999997e+22"},
		{0x44b52d02c7e14af6, "1e+23"},
		{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
		{0x444b1ae4d6e2ef4e, "999999999999999700000"},
		{0x444b1ae4d6e2ef4f, "999999999999999900000"},
		{0x444b1ae4d6e2ef50, "1e+21"},
		{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
		{0x3eb0c6f7a0b5ed8d, "0.000001"},
		{0x41b3de4355555553, "333333333.3333332"},
		{0x41b3de4355555554, "333333333.33333325"},
		{0x41b3de4355555555, "333333333.3333333"},
		{0x41b3de4355555556, "333333333.3333334"},
		{0x41b3de4355555557, "333333333.33333343"},
		{0xbecbf647612f3696, "-0.0000033333333333333333"},
		{0x43143ff3c1cb0959, "1424953923781206.2"},
	} {
		f := math.Float64frombits(row.bits)
		require.Equal(t, row.want, string(handoff.AppendNumber(nil, f)))
		require.Equal(t, row.want, canonical(f))
	}
}

// Numbers of all magnitudes have the text of another writer, except for -0.
func TestAppendNumber_Drawn(t *testing.T) {
	t.Parallel()
	g := newTrees(8)
	for range 50_000 * *drawnTimes {
		f := g.number()
		if f == 0 {
			f = 0 // not -0
		}
		got := string(handoff.AppendNumber(nil, f))
		require.Equal(t, jsontext.Float(f).String(), got)
		var back float64
		require.NoError(t, json.Unmarshal([]byte(got), &back))
		require.Equal(t, f, back)
	}
	require.Equal(t, "0", string(handoff.AppendNumber(nil, math.Copysign(0, -1))))
}

// TestAppendCanonical_RFC8785 has the examples of sections 3.2.2 and 3.2.3, and strings that other
// writers of JSON escape.
func TestAppendCanonical_RFC8785(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, in, want string }{
		{
			"section 3.2.2, primitive data",
			`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
			  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
			  "literals": [null, true, false]}`,
			`{"literals":[null,true,false],` +
				`"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],` +
				`"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			"section 3.2.3, sorting: a surrogate pair comes before U+FB33",
			`{"\u20ac": "Euro Sign", "\r": "Carriage Return",
			  "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
			  "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
			  "\u00f6": "Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control",` +
				`"ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign",` +
				`"😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		},
		{"a prefix comes first", `{"ab":1,"a":2,"":3,"b":4}`, `{"":3,"a":2,"ab":1,"b":4}`},
		{"two surrogate pairs sort by their second unit too",
			`{"😁":1,"😀":2,"𐀀":3}`, `{"𐀀":3,"😀":2,"😁":1}`},
		{"arrays keep their order", `[ 3, 1, [ ], { }, 2 ]`, `[3,1,[],{},2]`},
		{"every control character", `"\u0000\u0007\b\t\n\u000b\f\r\u001f\u007f"`,
			`"\u0000\u0007\b\t\n\u000b\f\r\u001f` + "\x7f" + `"`},
		{"characters that scripts and pages escape are not escaped",
			`"\u2028\u2029\u003c\u003e\u0026\/"`, "\"\u2028\u2029<>&/\""},
		{"negative zero", `[-0, -0.0, -0e5]`, `[0,0,0]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, canonical(decoded(t, []byte(row.in))))
		})
	}
}

// Go's integers are numbers. A value that no decoder gives is a defect of the program.
func TestAppendCanonical_GoValues(t *testing.T) {
	t.Parallel()
	const last = 1<<53 - 1
	require.Equal(t, `[0,-7,9007199254740991,-9007199254740991]`,
		canonical([]any{0, int64(-7), last, int64(-last)}))
	for _, v := range []any{uint8(1), []string{"a"}, map[string]string{}, struct{}{},
		json.Number("1"), math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.Panics(t, func() { canonical(map[string]any{"a": []any{v}}) }, "%T", v)
	}
}

func TestAppendCanonical_Appends(t *testing.T) {
	t.Parallel()
	require.Equal(t, `before{"a":1}`,
		string(handoff.AppendCanonical([]byte("before"), map[string]any{"a": 1.0})))
	require.Equal(t, `1"a"`, string(handoff.AppendString([]byte("1"), "a")))
	require.Equal(t, `1e+21`, string(handoff.AppendNumber([]byte{}, 1e21)))
	require.Equal(t, `e-01e-7`, string(handoff.AppendNumber([]byte("e-0"), 1e-7)))
}

func TestAppendCanonical_Drawn(t *testing.T) {
	t.Parallel()
	g := newTrees(1)
	for i := range 2_500 * *drawnTimes {
		requireCanonical(t, g.tree(4), "tree %d", i)
	}
}

// requireCanonical holds the canonical form of a tree against another implementation of RFC 8785,
// and asserts that it reads back as the tree.
func requireCanonical(t testing.TB, tree any, describe ...any) {
	t.Helper()
	got := canonical(tree)
	theirs := jsontext.Value(got)
	require.NoError(t, theirs.Canonicalize(), describe...)
	require.Equal(t, string(theirs), got, describe...)

	again, err := schemas.Decode([]byte(got), schemas.Limits{Bytes: len(got) + 1, Depth: 100})
	require.NoError(t, err, describe...)
	require.Equal(t, tree, again, describe...)
}

// Invalid bytes, which no decoder gives, are replaced.
func TestAppendString(t *testing.T) {
	t.Parallel()
	require.NoError(t, quick.Check(func(points []rune) bool {
		s := string(points) // U+FFFD instead of an invalid rune
		var back string
		return json.Unmarshal(handoff.AppendString(nil, s), &back) == nil && back == s
	}, nil))
	require.Equal(t, "\"a\ufffdb\ufffd\"", string(handoff.AppendString(nil, "a\xffb\xc3")))
}

func TestHash(t *testing.T) {
	t.Parallel()
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		handoff.Hash(nil))
	require.NoError(t, quick.Check(func(data []byte) bool {
		return handoff.Hash(data) == fmt.Sprintf("%x", sha256.Sum256(data))
	}, nil))
}

// trees draws random trees, the same ones for the same seed.
type trees struct{ *rand.Rand }

func newTrees(seed uint64) trees { return trees{rand.New(rand.NewPCG(seed, 8785))} }

// runes are the special ones of the canonical form, and their neighbours.
var runes = []rune("\x00\x01\b\t\n\v\f\r\x1e\x1f !\"#/[\\]az\x7f\u0080é€\u2028\u2029" +
	"\ud7ff\ue000\ufb33\uffff𐀀😀\U0010FFFF<>&'")

func (g trees) text() string {
	out := make([]rune, g.IntN(6))
	for i := range out {
		out[i] = runes[g.IntN(len(runes))]
	}
	return string(out)
}

func (g trees) number() float64 {
	switch g.IntN(5) {
	case 0:
		return float64(g.IntN(2001) - 1000)
	case 1:
		return float64(g.IntN(20001)-10000) / 1e4
	case 2: // around where the notation changes
		f := []float64{1e-7, 1e-6, 1e20, 1e21, 1 << 53, 5e-324, math.MaxFloat64}[g.IntN(7)]
		return math.Nextafter(f, []float64{0, f, 1e300}[g.IntN(3)])
	case 3:
		return g.NormFloat64()
	}
	for {
		f := math.Float64frombits(g.Uint64())
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	}
}

func (g trees) tree(depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch g.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return g.IntN(2) == 0
	case 2, 3:
		return g.text()
	case 4:
		return g.number()
	case 5:
		list := make([]any, g.IntN(4))
		for i := range list {
			list[i] = g.tree(depth - 1)
		}
		return list
	}
	object := map[string]any{}
	for range g.IntN(6) {
		object[g.text()] = g.tree(depth - 1)
	}
	return object
}
