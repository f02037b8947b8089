package handoff_test

import (
	"crypto/sha256"
	"encoding/json"
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

func canonical(tree any) string { return string(handoff.AppendCanonical(nil, tree)) }

// TestRFC8785Numbers is appendix B of the RFC.
func TestRFC8785Numbers(t *testing.T) {
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
		t.Run(row.want, func(t *testing.T) {
			t.Parallel()
			f := math.Float64frombits(row.bits)
			require.Equal(t, row.want, string(handoff.AppendNumber(nil, f)))
			require.Equal(t, row.want, canonical(f))
			require.Equal(t, row.want, naive(f), "the oracle itself")
		})
	}
}

func TestNumbersThatJSONDoesNotHavePanic(t *testing.T) {
	t.Parallel()
	for _, bits := range []uint64{0x7fffffffffffffff, 0x7ff0000000000000, 0xfff0000000000000} {
		f := math.Float64frombits(bits)
		require.Panics(t, func() { handoff.AppendNumber(nil, f) }, "%v", f)
		require.Panics(t, func() { canonical([]any{f}) }, "%v", f)
	}
}

// TestRFC8785Documents has the examples of sections 3.2.2 and 3.2.3, and strings of a world that
// other writers of JSON escape.
func TestRFC8785Documents(t *testing.T) {
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
		{
			"two surrogate pairs sort by their second unit too",
			`{"😁":1,"😀":2,"𐀀":3}`, `{"𐀀":3,"😀":2,"😁":1}`,
		},
		{"arrays keep their order", `[ 3, 1, [ ], { }, 2 ]`, `[3,1,[],{},2]`},
		{
			"every control character",
			`"\u0000\u0007\b\t\n\u000b\f\r\u001f\u007f"`,
			`"\u0000\u0007\b\t\n\u000b\f\r\u001f` + "\x7f" + `"`,
		},
		{
			"what scripts and pages escape is not escaped",
			`"\u2028\u2029\u003c\u003e\u0026\/"`, "\"\u2028\u2029<>&/\"",
		},
		{"negative zero", `[-0, -0.0, -0e5]`, `[0,0,0]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			tree := decoded(t, []byte(row.in))
			require.Equal(t, row.want, canonical(tree))
			require.Equal(t, row.want, naive(tree), "the oracle itself")
		})
	}
}

func TestGoIntegersAreNumbers(t *testing.T) {
	t.Parallel()
	const last = 1<<53 - 1
	require.Equal(t, `[0,-7,9007199254740991,-9007199254740991]`,
		canonical([]any{0, int64(-7), last, int64(-last)}))
}

func TestCanonicalPanicsOnWhatNoDecoderGives(t *testing.T) {
	t.Parallel()
	for _, v := range []any{uint8(1), []string{"a"}, map[string]string{}, struct{}{},
		json.Number("1")} {
		require.Panics(t, func() { canonical(map[string]any{"a": v}) }, "%T", v)
	}
}

func TestCanonicalAppends(t *testing.T) {
	t.Parallel()
	require.Equal(t, `before{"a":1}`,
		string(handoff.AppendCanonical([]byte("before"), map[string]any{"a": 1.0})))
	require.Equal(t, `1"a"`, string(handoff.AppendString([]byte("1"), "a")))
	require.Equal(t, `1e+21`, string(handoff.AppendNumber([]byte{}, 1e21)))
	require.Equal(t, `e-01e-7`, string(handoff.AppendNumber([]byte("e-0"), 1e-7)))
}

func TestCanonicalEqualsTheOracles(t *testing.T) {
	t.Parallel()
	g := newTrees(1)
	for i := range 2_500 * *handoff.DrawnTimes {
		requireCanonical(t, g.tree(4), "tree %d", i)
	}
}

func TestNumbersEqualTheOracle(t *testing.T) {
	t.Parallel()
	g := newTrees(2)
	for range 2_500 * *handoff.DrawnTimes {
		f := g.number()
		got := string(handoff.AppendNumber(nil, f))
		require.Equal(t, naiveNumber(f), got)
		var back float64
		require.NoError(t, json.Unmarshal([]byte(got), &back))
		require.Equal(t, f, back)
	}
}

// TestNumbersEqualJSONText holds numbers of all magnitudes against a second writer, whose -0 is the
// one difference.
func TestNumbersEqualJSONText(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(8, 8))
	for range 200_000 {
		f := math.Float64frombits(g.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) || f == 0 {
			continue
		}
		if want := jsontext.Float(f).String(); want != string(handoff.AppendNumber(nil, f)) {
			t.Fatalf("%s, not %s", handoff.AppendNumber(nil, f), want)
		}
	}
	require.Equal(t, "0", string(handoff.AppendNumber(nil, math.Copysign(0, -1))))
}

func TestStringsEqualTheOracleAndReadBack(t *testing.T) {
	t.Parallel()
	require.NoError(t, quick.Check(func(points []rune) bool {
		s := string(points) // what is no rune becomes U+FFFD
		got := string(handoff.AppendString(nil, s))
		var back string
		return got == naiveString(s) && json.Unmarshal([]byte(got), &back) == nil && back == s
	}, nil))
}

// No decoder gives such strings; their bad bytes are replaced.
func TestStringsThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\"a\ufffdb\ufffd\"", string(handoff.AppendString(nil, "a\xffb\xc3")))
}

// requireCanonical holds our canonical form of a tree against both oracles, and asserts that it
// is a fixed point.
func requireCanonical(t testing.TB, tree any, describe ...any) {
	t.Helper()
	got := canonical(tree)
	require.Equal(t, naive(tree), got, describe...)

	theirs := jsontext.Value(got)
	require.NoError(t, theirs.Canonicalize(), describe...)
	require.Equal(t, string(theirs), got, describe...)

	again, err := schemas.Decode([]byte(got), schemas.Limits{Bytes: len(got) + 1, Depth: 100})
	require.NoError(t, err, describe...)
	require.Equal(t, got, canonical(again), describe...)
}

func TestHashIsLowerCaseHexSHA256(t *testing.T) {
	t.Parallel()
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		handoff.Hash(nil))
	require.Equal(t, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
		handoff.Hash(handoff.AppendCanonical(nil, map[string]any{})))
	require.NoError(t, quick.Check(func(data []byte) bool {
		return handoff.Hash(data) == fmt.Sprintf("%x", sha256.Sum256(data))
	}, nil))
}
