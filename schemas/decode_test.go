package schemas_test

import (
	"encoding/json"
	"fmt"
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

// hostile are payloads near the size limit that must not cost more than their size.
func hostile() map[string]string {
	var members strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&members, `"member%d":0,`, i)
	}
	return map[string]string{
		"50,000 members": `{` + members.String() + `"last":0}`,
		"long number":    strings.Repeat("9", 300) + "." + strings.Repeat("9", 1_000_000),
		"subnormals": `[` + strings.Repeat("1e-308,", 1000) + strings.Repeat(`"1e-308",`, 110_000) +
			`0]`,
		"long numbers": `[` + strings.Repeat("1."+strings.Repeat("0", 700)+"1e-308,", 1000) +
			`0]`,
		"near neighbours": `[` + strings.Repeat("9007199254740993.00000001,", 40_000) + `0]`,
		"empty arrays":    `[` + strings.Repeat("[],", 340_000) + `[]]`,
		"empty objects":   `[` + strings.Repeat("{},", 340_000) + `{}]`,
		"escaped string":  `"` + strings.Repeat(`\u0041`, 170_000) + `"`,
		"white space":     `[` + strings.Repeat(" ", 1_000_000) + `]`,
		"one long name":   `{"` + strings.Repeat("x", 1_000_000) + `":0}`,
		"names in a row":  `[` + strings.Repeat(`{"a":0,"b":1},`, 70_000) + `0]`,
		"nested to depth": `[` + strings.Repeat(strings.Repeat("[", 31)+strings.Repeat("]", 31)+
			",", 16_000) + `0]`,
	}
}

func TestDecode_IsLinear(t *testing.T) {
	t.Parallel()
	for name, text := range hostile() {
		start := time.Now()
		_, err := schemas.Decode([]byte(text), schemas.Limits{})
		require.NoError(t, err, name)
		// A quadratic step takes minutes; the slack is for the race detector on a busy machine.
		require.Less(t, time.Since(start), 10*time.Second, name)
	}
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
