package wire

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/percent"
)

func TestTownToken(t *testing.T) {
	t.Parallel()
	hashed := func(id string) string { return fmt.Sprintf("=%x", sha256.Sum256([]byte(id))) }
	for _, row := range []struct{ name, id, want string }{
		{"plain", "town-threatened", "town-threatened"},
		{"every plain byte", "azAZ09_-", "azAZ09_-"},
		{"space", "Town 1", "Town%201"},
		{"dots", "a.b..c.", "a%2Eb%2E%2Ec%2E"},
		{"wildcards", "*.>", "%2A%2E%3E"},
		{"quotes", `o'brien "Mara"`, "o%27brien%20%22Mara%22"},
		{"percent", "100%20", "100%2520"},
		{"equals", "=unknown", "%3Dunknown"},
		{"slashes", `a/b\c`, "a%2Fb%5Cc"},
		{"control characters", "a\r\nPUB x\x00", "a%0D%0APUB%20x%00"},
		{"two bytes", "é", "%C3%A9"},
		{"the same in two code points", "e\u0301", "e%CC%81"},
		{"three bytes", "東京", "%E6%9D%B1%E4%BA%AC"},
		{"four bytes", "😀", "%F0%9F%98%80"},
		{"128 plain bytes", strings.Repeat("a", 128), strings.Repeat("a", 128)},
		{"129 plain bytes", strings.Repeat("a", 129), hashed(strings.Repeat("a", 129))},
		{"128 encoded bytes", strings.Repeat(".", 42) + "ab", strings.Repeat("%2E", 42) + "ab"},
		{"129 encoded bytes", strings.Repeat(".", 43), hashed(strings.Repeat(".", 43))},
		{"4 KB of emoji", strings.Repeat("😀", 1024), hashed(strings.Repeat("😀", 1024))},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, TownToken(row.id))
		})
	}
}

// encodedToken matches a token that is no hash.
var encodedToken = regexp.MustCompile(`^(?:[A-Za-z0-9_-]|%[0-9A-F]{2})*$`)

// randomID draws an id of bytes that matter to NATS and to the encoding, around the length at which
// tokens become hashes.
func randomID(g *rand.Rand) string {
	alphabet := []string{"a", "Z", "0", "-", "_", ".", "*", ">", "=", "%", "%2E", " ",
		"é", "😀", "\x00"}
	var b strings.Builder
	for range 1 + g.IntN([]int{3, 50, 140}[g.IntN(3)]) {
		b.WriteString(alphabet[g.IntN(len(alphabet))])
	}
	return b.String()
}

// Each id has one token, a safe part of a subject, and no two ids have the same.
func TestTownToken_Random(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(1, 1))
	ids, hashes := map[string]string{}, 0
	for range 20_000 {
		id := randomID(g)
		token := TownToken(id)
		require.NotEmpty(t, token)
		require.LessOrEqual(t, len(token), 128)
		if rest, ok := strings.CutPrefix(token, "="); ok {
			hashes++
			require.Regexp(t, `^[0-9a-f]{64}$`, rest)
			require.Greater(t, len(percent.Encode(id)), 128)
		} else {
			require.Regexp(t, encodedToken, token)
			unescaped, err := url.PathUnescape(token)
			require.NoError(t, err, "any reader of percent-encoding gets the id back")
			require.Equal(t, id, unescaped)
		}
		if other, ok := ids[token]; ok {
			require.Equal(t, other, id, "two ids have the token %s", token)
		}
		ids[token] = id
	}
	require.NotContains(t, ids, "=unknown")
	require.Greater(t, hashes, 1000)
	require.Greater(t, len(ids), 10_000)
}

func TestTownToken_Injective(t *testing.T) {
	t.Parallel()
	require.NoError(t, quick.Check(func(a, b []byte) bool {
		return (TownToken(string(a)) == TownToken(string(b))) == (string(a) == string(b))
	}, nil))
	for _, pair := range [][2]string{
		{"a.b", "a%2Eb"}, {"A", "a"}, {"é", "e\u0301"}, {"a", "a "}, {"%3D", "="},
		{strings.Repeat(".", 43), TownToken(strings.Repeat(".", 43))},
	} {
		require.NotEqual(t, TownToken(pair[0]), TownToken(pair[1]), "%q and %q", pair[0], pair[1])
	}
}

func TestValidateWorld(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"main", "Main_2-b", "0", strings.Repeat("w", 64)} {
		require.NoError(t, ValidateWorld(good), good)
	}
	for _, bad := range []string{"", "a.b", "a b", "*", ">", "main\n", "wörld",
		strings.Repeat("w", 65), "a/b", "$JS"} {
		require.Error(t, ValidateWorld(bad), "%q", bad)
	}
}
