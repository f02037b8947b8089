package handoff_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"
)

// naive is the obvious canonical JSON: slow, and written from RFC 8785 and ECMA-262 without the
// code under test.
func naive(tree any) string {
	switch v := tree.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprintf("%t", v)
	case float64:
		return naiveNumber(v)
	case string:
		return naiveString(v)
	case []any:
		var elements []string
		for _, element := range v {
			elements = append(elements, naive(element))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case map[string]any:
		var names []string
		for name := range v {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		})
		var members []string
		for _, name := range names {
			members = append(members, naiveString(name)+":"+naive(v[name]))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	panic(fmt.Sprintf("%T", tree))
}

func naiveString(s string) string {
	out := `"`
	for _, r := range s {
		switch r {
		case '"':
			out += `\"`
		case '\\':
			out += `\\`
		case '\b':
			out += `\b`
		case '\t':
			out += `\t`
		case '\n':
			out += `\n`
		case '\f':
			out += `\f`
		case '\r':
			out += `\r`
		default:
			if r < 0x20 {
				out += fmt.Sprintf(`\u%04x`, r)
			} else {
				out += string(r)
			}
		}
	}
	return out + `"`
}

// naiveNumber is Number::toString(x, 10) of ECMA-262, step by step.
func naiveNumber(x float64) string {
	if x == 0 {
		return "0"
	}
	if x < 0 {
		return "-" + naiveNumber(-x)
	}
	digits, n := shortest(x)
	k := len(digits)
	switch {
	case k <= n && n <= 21:
		return digits + strings.Repeat("0", n-k)
	case 0 < n && n <= 21:
		return digits[:n] + "." + digits[n:]
	case -6 < n && n <= 0:
		return "0." + strings.Repeat("0", -n) + digits
	}
	exponent := fmt.Sprintf("e%+d", n-1)
	if k == 1 {
		return digits + exponent
	}
	return digits[:1] + "." + digits[1:] + exponent
}

// shortest returns the k digits of s and the n of the specification: k is as small as possible,
// s has k digits, s * 10^(n-k) reads back as x, and is the closest such value to x.
func shortest(x float64) (digits string, n int) {
	exact := new(big.Rat).SetFloat64(x)
	n = int(math.Floor(math.Log10(x))) - 1
	for exact.Cmp(powerOfTen(n)) >= 0 {
		n++
	}
	for k := 1; ; k++ {
		unit := powerOfTen(n - k)
		ratio := new(big.Rat).Quo(exact, unit)
		below := new(big.Int).Quo(ratio.Num(), ratio.Denom())
		var best *big.Int
		var bestDistance *big.Rat
		for _, s := range []*big.Int{below, new(big.Int).Add(below, big.NewInt(1))} {
			value := new(big.Rat).Mul(new(big.Rat).SetInt(s), unit)
			if back, _ := value.Float64(); back != x {
				continue
			}
			distance := new(big.Rat).Sub(value, exact)
			distance.Abs(distance)
			if best == nil || distance.Cmp(bestDistance) < 0 {
				best, bestDistance = s, distance
			}
		}
		if best == nil {
			continue
		}
		digits = best.String()
		n += len(digits) - k // 9.99… became 10
		return strings.TrimRight(digits, "0"), n
	}
}

func powerOfTen(n int) *big.Rat {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n, -n))), nil)
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), power)
	}
	return new(big.Rat).SetInt(power)
}

// trees draws random trees, the same ones for the same seed.
type trees struct{ *rand.Rand }

func newTrees(seed uint64) trees { return trees{rand.New(rand.NewPCG(seed, 8785))} }

// runes are those that the canonical form treats specially, and their neighbours.
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
		if f := math.Float64frombits(g.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
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
