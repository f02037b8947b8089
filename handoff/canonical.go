package handoff

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Hash returns the lower-case hex SHA-256 of canonical, which must be canonical JSON in UTF-8. The
// contract has no other hash: snapshotHash is Hash alone, ids are a prefix and Hash.
func Hash(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// AppendCanonical appends the canonical JSON (RFC 8785) of tree: no white space, members sorted by
// the UTF-16 code units of their names, ES6 strings and numbers, arrays in their order.
//
// A tree has the types of schemas.Decode: map[string]any, []any, string, float64, bool or nil; int
// and int64 are numbers too, and must lie within ±2^53. It panics on anything else and on a number
// that is not finite: no decoder gives them.
func AppendCanonical(dst []byte, tree any) []byte {
	switch v := tree.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return AppendString(dst, v)
	case float64:
		return AppendNumber(dst, v)
	case int:
		return AppendNumber(dst, float64(v))
	case int64:
		return AppendNumber(dst, float64(v))
	case []any:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendCanonical(dst, element)
		}
		return append(dst, ']')
	case map[string]any:
		return appendObject(dst, v)
	}
	panic(fmt.Sprintf("handoff: no canonical JSON for a %T", tree))
}

func appendObject(dst []byte, object map[string]any) []byte {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.SortFunc(names, compareUTF16)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, name), ':')
		dst = AppendCanonical(dst, object[name])
	}
	return append(dst, '}')
}

// compareUTF16 orders two strings by their UTF-16 code units. That is the order of their bytes,
// except that a rune beyond the BMP (surrogates D800..DFFF) comes before U+E000..U+FFFF.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			return firstUnit(ra, rb) - firstUnit(rb, ra)
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

// firstUnit returns r, or the first surrogate if r is beyond the BMP and other is not.
func firstUnit(r, other rune) int {
	const bmpEnd, firstSurrogate = 0x10000, 0xD800
	if r < bmpEnd || other >= bmpEnd {
		return int(r)
	}
	return firstSurrogate
}

// AppendString appends s as an ES6 JSON string: it escapes only the quote, the backslash and the
// control characters below U+0020. s must be valid UTF-8, as from a decoder; any other byte becomes
// U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // its only error is invalid UTF-8
	return dst
}

// AppendNumber appends f as ECMAScript's Number::toString does: the shortest digits that read back
// as f, an exponent below 1e-6 and from 1e21 on (1e-7, 1e+21), and 0 for -0. It panics on NaN and
// the infinities, which JSON does not have.
func AppendNumber(dst []byte, f float64) []byte { // without the two allocations of a jsontext.Token
	if math.IsNaN(f) || math.IsInf(f, 0) {
		panic("handoff: no canonical JSON for a number that is not finite")
	}
	if f == 0 {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads an exponent to two digits (1e-07), ECMAScript does not. A positive one is 21 or more.
	if n := len(dst); dst[n-3] == '-' && dst[n-2] == '0' {
		dst = append(dst[:n-2], dst[n-1])
	}
	return dst
}
