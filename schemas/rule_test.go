package schemas

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRule_HexPatterns holds the shortcut for hashes and ids against its regular expression.
func TestRule_HexPatterns(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{`^[0-9a-f]{64}$`, `^handoff_[0-9a-f]{64}$`,
		`^result_[0-9a-f]{8}$`} {
		prefix, digits, ok := hexPattern(pattern)
		require.True(t, ok, pattern)
		re := regexp.MustCompile(pattern)
		good := prefix + strings.Repeat("09af", digits/4)
		require.True(t, isHex(good, prefix, digits))
		tries := []string{"", prefix, good + "0", good[1:], good[:len(good)-1],
			good + "\n", "\n" + good,
			strings.ToUpper(good), strings.Replace(good, "f", "g", 1),
			strings.Replace(good, "9", ":", 1),
			strings.Replace(good, "0", "/", 1), strings.Replace(good, "a", "`", 1),
			strings.Replace(good, "af", "é", 1), strings.Replace(good, "_", "-", 1)}
		for _, s := range append(tries, good) {
			require.Equal(t, re.MatchString(s), isHex(s, prefix, digits), "%s: %q", pattern, s)
		}
	}
	for _, pattern := range []string{`[0-9a-f]{64}`, `^[0-9a-f]+$`, `^[0-9a-fA-F]{64}$`,
		`^a.b[0-9a-f]{64}$`,
		`^[0-9a-f]{1,64}$`, `^[0-9a-f]{64}`, `^[^|]+$`} {
		_, _, ok := hexPattern(pattern)
		require.False(t, ok, pattern)
	}
}

// A document with unknown keywords must not pass silently.
func TestRule_UnknownKeywords(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { newKinds([]string{"date"}) })
	require.Panics(t, func() { newOnly([]any{1.0}, nil) })
	require.Panics(t, func() { newOnly(nil, []any{[]any{}}) })
}

func TestCompiler_LoadsEmbedded(t *testing.T) {
	t.Parallel()
	c := newCompiler()
	elsewhere := []string{
		base + "nonsense.v1" + suffix, "https://example.com/x.json", "file:///x.json",
	}
	for _, url := range elsewhere {
		_, err := c.Compile(url)
		require.ErrorContains(t, err, "is not embedded", url)
	}
}

// Each document is a schema that can be checked, whoever asks first.
func TestRules_AreMadeOnce(t *testing.T) {
	t.Parallel()
	fresh := newRules()
	require.Len(t, fresh, len(Names()))
	var made sync.Map
	var users sync.WaitGroup
	for _, n := range slices.Concat(Names(), Names()) {
		users.Go(func() {
			r := fresh[n]()
			first, _ := made.LoadOrStore(n, r)
			assert.NotNil(t, r)
			assert.Same(t, first, r)
		})
	}
	users.Wait()
}
