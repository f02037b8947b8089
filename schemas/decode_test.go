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

func TestDecode_Refused(t *testing.T) {
	t.Parallel()
	deep := func(levels int) string {
		return strings.Repeat("[", levels) + strings.Repeat("]", levels)
	}
	for _, c := range []struct{ name, text, path, message string }{
		{"empty", ``, "", "must be a JSON value but is empty"},
		{"white space only", " \n", "", "must be a JSON value but is empty"},
		{"not JSON", `hello`, "",
			`is not valid JSON: invalid character 'h' at start of value at byte 0`},
		{"byte order mark", "\ufeff{}", "",
			`is not valid JSON: it begins with a byte order mark (BOM); it has to be UTF-8 without one`},
		{"single quotes", `{'a':1}`, "",
			`is not valid JSON: invalid character '\'' at start of value at byte 1`},
		{"comment", `{"a":/**/1}`, "/a",
			`is not valid JSON: invalid character '/' at start of value at byte 5`},
		{"truncated object", `{"a":{"b":1`, "/a", `is not valid JSON: unexpected EOF at byte 11`},
		{"truncated string", `{"a":"b`, "/a", `is not valid JSON: unexpected EOF at byte 7`},
		{"truncated literal", `[tru`, "/0", `is not valid JSON: unexpected EOF at byte 4`},
		{"trailing comma", `[1,]`, "",
			`is not valid JSON: invalid character ',' at start of value at byte 2`},
		{"missing value", `{"a"}`, "/a",
			`is not valid JSON: invalid character '}' after object name (expecting ':') at byte 4`},
		{"name not a string", `{1:2}`, "",
			`is not valid JSON: object member name must be a string at byte 1`},
		{"wrong end", `{"a":[1}}`, "/a",
			`is not valid JSON: invalid character '}' after array element (expecting ',' or ']') at byte 7`},
		{"trailing value", `{} {}`, "", "must be one JSON value but goes on at byte 3"},
		{"trailing garbage", `1 x`, "", "must be one JSON value but goes on at byte 2"},
		{"trailing zero byte", "null\x00", "", "must be one JSON value but goes on at byte 4"},
		{"duplicate name", `{"a":{"b":1,"b":1}}`, "/a/b",
			"is a second member of this name, at byte 12"},
		{"duplicate name, escaped", `{"type":1,"t\u0079pe":2}`, "/type",
			"is a second member of this name, at byte 10"},
		{"duplicate name in an array", `[0,{"a/b":1,"a/b":2}]`, "/1/a~1b",
			"is a second member of this name, at byte 12"},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", "/a", "is not valid JSON: invalid UTF-8 at byte 6"},
		{"overlong UTF-8", "[\"\xc0\xaf\"]", "/0", "is not valid JSON: invalid UTF-8 at byte 2"},
		{"invalid UTF-8 in a name", "{\"\xff\":1}", "",
			"is not valid JSON: invalid UTF-8 at byte 2"},
		{"lone high surrogate", `["\ud83d"]`, "/0",
			`is not valid JSON: invalid surrogate pair ` + "`\\ud83d\"]`" + ` in string at byte 2`},
		{"lone low surrogate", `["\ude00"]`, "/0",
			`is not valid JSON: invalid surrogate pair ` + "`\\ude00\"]`" + ` in string at byte 2`},
		{"surrogates the wrong way round", `["\ude00\ud83d"]`, "/0",
			`is not valid JSON: invalid surrogate pair ` + "`\\ude00\\ud83d`" +
				` in string at byte 2`},
		{"raw surrogate", "[\"\xed\xa0\xbd\"]", "/0", "is not valid JSON: invalid UTF-8 at byte 2"},
		{"unknown escape", `["\x41"]`, "/0",
			`is not valid JSON: invalid escape sequence ` + "`\\x`" + ` in string at byte 2`},
		{"control character", "[\"a\nb\"]", "/0",
			`is not valid JSON: invalid character '\n' in string (expecting non-control character) at byte 3`},
		{"NaN", `[NaN]`, "/0",
			`is not valid JSON: invalid character 'N' at start of value at byte 1`},
		{"Infinity", `[Infinity]`, "/0",
			`is not valid JSON: invalid character 'I' at start of value at byte 1`},
		{"minus Infinity", `[-Infinity]`, "/0",
			`is not valid JSON: invalid character 'I' in number (expecting digit) at byte 2`},
		{"leading zero", `{"a":007}`, "",
			`is not valid JSON: invalid character '0' after object value (expecting ',' or '}') at byte 6`},
		{"leading plus", `[+1]`, "/0",
			`is not valid JSON: invalid character '+' at start of value at byte 1`},
		{"no fraction", `[1.]`, "/0",
			`is not valid JSON: invalid character ']' in number (expecting digit) at byte 3`},
		{"hexadecimal", `[0x10]`, "",
			`is not valid JSON: invalid character 'x' after array element (expecting ',' or ']') at byte 2`},
		{"overflow", `{"a":[0,1e400]}`, "/a/1",
			"is a number that overflows a float64, before byte 13"},
		{"negative overflow", `-1e309`, "", "is a number that overflows a float64, before byte 6"},
		{"huge exponent", `[1e999999999999999999999]`, "/0",
			"is a number that overflows a float64, before byte 24"},
		{"too deep by one", deep(33), strings.Repeat("/0", 32),
			"is nested deeper than 32 levels, before byte 33"},
		{"far too deep", deep(10_000), strings.Repeat("/0", 32),
			"is nested deeper than 32 levels, before byte 33"},
		{"far too deep, objects", strings.Repeat(`{"a":`, 10_000), strings.Repeat("/a", 32),
			"is nested deeper than 32 levels, before byte 161"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := schemas.Decode([]byte(c.text), schemas.Limits{})
			ve := refusal(t, err)
			require.Equal(t, schemas.CodeInvalidJSON, ve.Code)
			require.Empty(t, ve.Schema)
			require.Equal(t, []schemas.Violation{violation(c.path, c.message)}, ve.Violations)
			_, err = schemas.Parse(schemas.Error, []byte(c.text), schemas.Limits{})
			require.Equal(t, schemas.Error, refusal(t, err).Schema)
		})
	}
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
