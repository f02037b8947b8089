package schemas_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

func TestDecode_Tree(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		` null `:                        nil,
		"\t\r\n true\n":                 true,
		`false`:                         false,
		`"a\u0000\u00e9\ud83d\ude00\/"`: "a\x00é😀/",
		`-0`:                            0.0,
		`-0.0e5`:                        0.0,
		`-1e-400`:                       0.0,
		`1.7976931348623157e308`:        1.7976931348623157e308,
		`5e-324`:                        5e-324,
		`9007199254740993`:              9007199254740992.0,
		`1e0`:                           1.0,
		`[]`:                            []any{},
		`{}`:                            map[string]any{},
		`{"":[{"a":[null,"NaN"]}]}`: map[string]any{
			"": []any{map[string]any{"a": []any{nil, "NaN"}}},
		},
	} {
		tree, err := schemas.Decode([]byte(text), schemas.Limits{})
		require.NoError(t, err, text)
		require.Equal(t, want, tree, text)
	}
	zero, err := schemas.Decode([]byte(`-0`), schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, "0", fmt.Sprint(zero), "-0 must lose its sign")
}

func TestDecode_Limits(t *testing.T) {
	t.Parallel()
	_, err := schemas.Decode([]byte(`"12"`), schemas.Limits{Bytes: 4})
	require.NoError(t, err)
	_, err = schemas.Decode([]byte(`"123"`), schemas.Limits{Bytes: 4})
	ve := refusal(t, err)
	require.Equal(t, schemas.CodePayloadTooLarge, ve.Code)
	require.EqualError(t, ve, "schemas: must have at most 4 bytes but has 5")

	full := `"` + strings.Repeat("x", schemas.DefaultBytes-2) + `"`
	_, err = schemas.Decode([]byte(full), schemas.Limits{})
	require.NoError(t, err)
	_, err = schemas.Decode([]byte(full+" "), schemas.Limits{})
	require.Equal(t, schemas.CodePayloadTooLarge, refusal(t, err).Code)

	_, err = schemas.Decode([]byte(`[{"a":[]}]`), schemas.Limits{Depth: 3})
	require.NoError(t, err)
	_, err = schemas.Decode([]byte(`[{"a":[]}]`), schemas.Limits{Depth: 2})
	require.Equal(t, "/0/a", refusal(t, err).Violations[0].Path)
	_, err = schemas.Decode([]byte(`1`), schemas.Limits{Depth: 1})
	require.NoError(t, err)
	for text, path := range map[string]string{
		strings.Repeat("[", 33) + strings.Repeat("]", 33): strings.Repeat("/0", 32),
		strings.Repeat("[", 10_000):                       strings.Repeat("/0", 32),
		strings.Repeat(`{"a":`, 10_000):                   strings.Repeat("/a", 32),
	} {
		_, err := schemas.Decode([]byte(text), schemas.Limits{})
		require.Equal(t, path, refusal(t, err).Violations[0].Path)
		require.ErrorContains(t, err, "is nested deeper than 32 levels, before byte")
	}
}

func TestDecode_HardNumbers(t *testing.T) {
	t.Parallel()
	list := func(n int, number string) []byte {
		return []byte(`[` + strings.Repeat(number+",", n-1) + number + `]`)
	}
	for _, number := range []string{
		"1e-308", "1E+100", "1e-0100", "5e-324", "0.12345678901234567890123456",
	} {
		_, err := schemas.Decode(list(1000, number), schemas.Limits{})
		require.NoError(t, err, number)
		_, err = schemas.Decode(list(1001, number), schemas.Limits{})
		require.Equal(t, "/1000", refusal(t, err).Violations[0].Path, number)
	}
	for _, number := range []string{"1e99", "1E-00099", "-0.0000012345678901234567",
		"0.30000000000000004"} {
		_, err := schemas.Decode(list(5000, number), schemas.Limits{})
		require.NoError(t, err, number)
	}
}

// The caller may reuse its buffer.
func TestDecode_SharesNothing(t *testing.T) {
	t.Parallel()
	data := []byte(`{"name":["value",1]}`)
	tree, err := schemas.Decode(data, schemas.Limits{})
	require.NoError(t, err)
	for i := range data {
		data[i] = 'x'
	}
	require.Equal(t, map[string]any{"name": []any{"value", 1.0}}, tree)
}

func TestDecode_LongPath(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 2000)
	_, err := schemas.Decode([]byte(`{"a":{"`+long+`":1e400}}`), schemas.Limits{})
	ve := refusal(t, err)
	require.Equal(t, "/a", ve.Violations[0].Path)
	require.Contains(t, ve.Violations[0].Message,
		"in a member whose path is too long to show: is a number")
	_, err = schemas.Decode([]byte(`{"`+long+`":1e400}`), schemas.Limits{})
	require.Empty(t, refusal(t, err).Violations[0].Path)
}

// hostile are payloads that must not cost more than their size: near the size limit if n is 960.
func hostile(n int) map[string]string {
	var members strings.Builder
	for i := range 50 * n {
		fmt.Fprintf(&members, `"member%d":0,`, i)
	}
	repeated := strings.Repeat
	return map[string]string{
		"50,000 members":  `{` + members.String() + `"last":0}`,
		"long number":     repeated("9", 300) + "." + repeated("9", 1000*n),
		"subnormals":      `[` + repeated("1e-308,", n) + repeated(`"1e-308",`, 110*n) + `0]`,
		"long numbers":    `[` + repeated("1."+repeated("0", 700)+"1e-308,", n) + `0]`,
		"near neighbours": `[` + repeated("9007199254740993.00000001,", 40*n) + `0]`,
		"empty arrays":    `[` + repeated("[],", 340*n) + `[]]`,
		"empty objects":   `[` + repeated("{},", 340*n) + `{}]`,
		"escaped string":  `"` + repeated(`\u0041`, 170*n) + `"`,
		"white space":     `[` + repeated(" ", 1000*n) + `]`,
		"one long name":   `{"` + repeated("x", 1000*n) + `":0}`,
		"names in a row":  `[` + repeated(`{"a":0,"b":1},`, 70*n) + `0]`,
		"nested to depth": `[` + repeated(repeated("[", 31)+repeated("]", 31)+",", 16*n) + `0]`,
	}
}

func TestDecode_IsLinear(t *testing.T) {
	t.Parallel()
	for name := range hostile(1) {
		texts := map[int][]byte{}
		requireLinear(t, name, 60, func(n int) {
			texts[n] = []byte(hostile(n)[name])
		}, func(n int) {
			_, err := schemas.Decode(texts[n], schemas.Limits{})
			require.NoError(t, err, name)
		})
	}
}

// requireLinear fails if work of sixteen times the size takes 128 times as long: if it is quadratic, it takes 256
// times as long. The shortest times of the processor count, since other work on the machine only adds to a time.
func requireLinear(t *testing.T, name string, size int, prepare, work func(n int)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	large := 16 * size
	shortest := map[int]time.Duration{}
	for _, n := range []int{size, large} {
		prepare(n)
		shortest[n] = time.Hour
	}
	for round := range 20 {
		for n, before := range shortest {
			began := threadTime(t)
			work(n)
			shortest[n] = min(before, threadTime(t)-began)
		}
		if round > 0 && shortest[large] < 128*shortest[size] {
			return
		}
	}
	require.Fail(t, "not linear", "%s: size %d takes %v, and %d takes %v", name, size, shortest[size], large,
		shortest[large])
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0,"\ud83d\ude00",null,true]}`,
		`{"a":1,"\u0061":2}`, `1e400`,
		`[[[[[[]]]]]]`, "\ufeff1", `{"a":{"b~/":[{}]}}`, `"\ud800"`,
		` [1.5e-7 , 123456789012345678901] `} {
		f.Add([]byte(s))
	}
	f.Add(handoff(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := schemas.Decode(data, schemas.Limits{Depth: 8, Bytes: 1 << 16})
		if err != nil {
			ve := refusal(t, err)
			require.Len(t, ve.Violations, 1)
			require.True(t, utf8.ValidString(ve.Violations[0].Path), "%q", ve.Violations[0].Path)
			require.True(t, utf8.ValidString(ve.Violations[0].Message), "%q",
				ve.Violations[0].Message)
			return
		}
		require.True(t, utf8.Valid(data))
		var want any
		require.NoError(t, json.Unmarshal(data, &want))
		require.Equal(t, want, tree)
		again, err := json.Marshal(tree)
		require.NoError(t, err)
		back, err := schemas.Decode(again, schemas.Limits{Depth: 8, Bytes: 1 << 20})
		require.NoError(t, err)
		require.Equal(t, tree, back)
	})
}
