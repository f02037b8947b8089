package trace_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/trace"
)

const (
	id     = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent = "00-" + id + "-00f067aa0ba902b7-01"
	state  = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
)

// W3C trace context level 1, section 3.2, and its level 2, which has the same version.
func TestParse_Parent(t *testing.T) {
	t.Parallel()
	rest := parent[2:]
	for name, c := range map[string]struct{ header, want string }{
		"the example of W3C":  {parent, parent},
		"not sampled":         {parent[:53] + "00", parent[:53] + "00"},
		"flags as they came":  {parent[:53] + "ff", parent[:53] + "ff"},
		"blanks around it":    {" \t" + parent + " ", parent},
		"nothing":             {"", ""},
		"upper case":          {strings.ToUpper(parent), ""},
		"an upper-case digit": {strings.Replace(parent, "4bf", "4Bf", 1), ""},
		"no hex":              {strings.Replace(parent, "4bf", "4gf", 1), ""},
		"trace id of zeros": {strings.Replace(parent, id, strings.Repeat("0", 32), 1),
			""},
		"parent id of zeros":          {"00-" + id + "-0000000000000000-01", ""},
		"a short trace id":            {"00-" + id[1:] + "-00f067aa0ba902b7-01", ""},
		"a short parent id":           {"00-" + id + "-0f067aa0ba902b7-01", ""},
		"flags of one digit":          {parent[:54], ""},
		"flags that are no hex":       {parent[:53] + "0x", ""},
		"other separators":            {strings.ReplaceAll(parent, "-", "_"), ""},
		"version 00 with more":        {parent + "-more", ""},
		"version 00 with a hyphen":    {parent + "-", ""},
		"version ff":                  {"ff" + rest, ""},
		"a version that is no hex":    {"0g" + rest, ""},
		"a later version":             {"01" + rest, parent},
		"a later version, with more":  {"cc" + rest + "-what-comes", parent},
		"a later version, then text":  {"cc" + rest + ".what", ""},
		"a later version, more flags": {"01" + rest[:51] + "ff", parent},
		"a later version, unsampled":  {"01" + rest[:51] + "fe", parent[:53] + "00"},
		"a line feed":                 {parent + "\n", ""},
	} {
		got := trace.Parse(c.header, "")
		require.Equal(t, trace.Context{Parent: c.want}, got, name)
		require.Equal(t, c.want == "", got.IsZero(), name)
	}
}

// W3C trace context, section 3.3.
func TestParse_State(t *testing.T) {
	t.Parallel()
	member := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(",k" + string(rune('a'+i/10)) + string(rune('0'+i%10)) + "=v")
		}
		return b.String()[1:]
	}
	for name, c := range map[string]struct {
		header string
		valid  bool
	}{
		"the example of W3C":          {state, true},
		"an empty member":             {"a=1,,b=2", true},
		"blanks around members":       {"a=1 ,\tb=2", true},
		"a blank in a value":          {"a=1 2", true},
		"a tenant":                    {"0fw529a3039@dt=FfJ", true},
		"all characters of a key":     {"a0_-*/=x", true},
		"32 members":                  {member(32), true},
		"33 members":                  {member(33), false},
		"a key twice":                 {"a=1,b=2,a=3", false},
		"no value":                    {"a=", false},
		"no equals sign":              {"a", false},
		"two equals signs":            {"a=b=c", false},
		"only commas":                 {",,", false},
		"a key of upper case":         {"A=1", false},
		"a key that begins by digit":  {"0a=1", false},
		"a key that begins by hyphen": {"-a=1", false},
		"an empty tenant":             {"@dt=1", false},
		"an empty system":             {"a@=1", false},
		"a system that is too long":   {"a@" + strings.Repeat("b", 15) + "=1", false},
		"two tenants":                 {"a@b@c=1", false},
		"a control character":         {"a=\x01", false},
		"no ASCII":                    {"a=é", false},
		"a key of 256":                {strings.Repeat("k", 256) + "=v", true},
		"a key of 257":                {strings.Repeat("k", 257) + "=v", false},
		"a value of 256":              {"k=" + strings.Repeat("v", 256), true},
		"a value of 257":              {"k=" + strings.Repeat("v", 257), false},
		"512 bytes": {"a=" + strings.Repeat("v", 256) + ",b=" +
			strings.Repeat("v", 251), true},
		"513 bytes": {"a=" + strings.Repeat("v", 256) + ",b=" + strings.Repeat("v", 252), false},
	} {
		want := trace.Context{Parent: parent}
		if c.valid {
			want.State = c.header
		}
		require.Equal(t, want, trace.Parse(parent, c.header), name)
		require.Zero(t, trace.Parse(parent+"x", c.header), name)
	}
}

func TestExtract(t *testing.T) {
	t.Parallel()
	want := trace.Context{Parent: parent, State: state}
	for name, c := range map[string]struct {
		header map[string][]string
		want   trace.Context
	}{
		"none": {nil, trace.Context{}},
		"as W3C writes it": {map[string][]string{"traceparent": {parent}, "tracestate": {state}},
			want},
		"as HTTP writes it": {map[string][]string{"Traceparent": {parent}, "Tracestate": {state}},
			want},
		"two traceparents": {map[string][]string{"traceparent": {parent, parent}}, trace.Context{}},
		"two in two cases": {map[string][]string{"traceparent": {parent}, "TraceParent": {parent}},
			trace.Context{}},
		"a state alone": {map[string][]string{"tracestate": {state}}, trace.Context{}},
		"states in two": {map[string][]string{"traceparent": {parent},
			"tracestate": strings.SplitN(state, ",", 2)},
			want},
		"a bad state": {map[string][]string{"traceparent": {parent}, "tracestate": {"="}},
			trace.Context{Parent: parent}},
		"others": {map[string][]string{"Trace-Parent": {parent}, "traceparents": {parent}},
			trace.Context{}},
	} {
		require.Equal(t, c.want, trace.Extract(c.header), name)
	}
}

// A written context reads back; an empty one writes nothing.
func TestContext_Header(t *testing.T) {
	t.Parallel()
	c := trace.Parse(parent, state)
	require.Equal(t, id, c.TraceID())
	require.Equal(t, c, trace.Extract(c.Inject(nil)))
	given := map[string][]string{"Other": {"x"}}
	require.Equal(t, map[string][]string{"Other": {"x"}, "traceparent": {parent},
		"tracestate": {state}},
		c.Inject(given))

	var none trace.Context
	require.Nil(t, none.Inject(nil))
	require.Empty(t, none.TraceID())
	require.NotContains(t, trace.Parse(parent, "").Inject(nil), "tracestate")

	type stored struct {
		Trace trace.Context `json:"trace,omitzero"`
	}
	data, err := json.Marshal(stored{c})
	require.NoError(t, err)
	require.JSONEq(t, `{"trace":{"traceparent":"`+parent+`","tracestate":"`+state+
		`"}}`, string(data))
	data, err = json.Marshal(stored{})
	require.NoError(t, err)
	require.Equal(t, `{}`, string(data))
}

func TestContext_LogAttr(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&b, nil))
	logger.Warn("said", "run", "r", trace.Parse(parent, state).LogAttr(), "error", "e")
	require.Contains(t, b.String(), "msg=said run=r traceparent="+parent+" error=e\n")
	b.Reset()
	logger.Warn("said", "run", "r", trace.Context{}.LogAttr(), "error", "e")
	require.Contains(t, b.String(), "msg=said run=r error=e\n")
}

// FuzzExtract: from any headers, the context that is passed on is of the grammar, small, and
// reads back.
func FuzzExtract(f *testing.F) {
	f.Add("traceparent", parent, "tracestate", state)
	f.Add("Traceparent", "cc"+parent[2:]+"-more", "TRACESTATE", "a@b=c, d=e")
	f.Add("traceparent", parent, "traceparent", parent)
	valid := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	f.Fuzz(func(t *testing.T, name, value, other, more string) {
		c := trace.Extract(map[string][]string{name: {value}, other: {more}})
		if c.IsZero() {
			return
		}
		require.Regexp(t, valid, c.Parent)
		require.LessOrEqual(t, len(c.State), 512)
		require.NotContains(t, c.State, "\r")
		require.NotContains(t, c.State, "\n")
		require.Equal(t, c, trace.Extract(c.Inject(nil)))
	})
}
