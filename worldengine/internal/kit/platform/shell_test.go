package platform_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/platform"
)

// A shell reads every word back, and carries nothing of it out.
func TestShellQuote(t *testing.T) {
	t.Parallel()
	require.Equal(t, "town-1", platform.ShellQuote("town-1"))
	require.Equal(t, "'Oak Hill'", platform.ShellQuote("Oak Hill"))
	words := []string{
		"", "-", "~", "a b", "it's", `"`, "$(touch x)", "`touch x`", `\`, `\n`, "$HOME", "a;b&c|d>e<f",
		"*?[x]{a,b}!#", "=a", "Größe ☃",
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = platform.ShellQuote(word)
	}
	got, err := exec.Command("sh", "-c", `printf '%s\n' `+strings.Join(quoted, " ")).Output()
	require.NoError(t, err)
	require.Equal(t, strings.Join(words, "\n")+"\n", string(got))

	// None of these reaches a terminal as it is.
	for word, want := range map[string]string{
		"a\nb": `$'a\nb'`, "\t'q' \"d\" \\": `$'\t\'q\' "d" \\'`, "\x1b[31m": `$'\x1b[31m'`,
		"\u202eabc": `$'\u202eabc'`, "\xff": `$'\xff'`,
	} {
		require.Equal(t, want, platform.ShellQuote(word))
	}
}
