package client

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// byRequest are the verbs that neither client sends by itself: operators have commands of
// handoffctl for them, producers of run events the package emit, and all others Request.
var byRequest = []wire.Verb{
	wire.RunAppend, wire.RunCancel, wire.ControlPause, wire.ControlResume,
}

// A new verb has a method in both clients, or is named here as one that has none.
func TestTheClientsSendTheVerbs(t *testing.T) {
	t.Parallel()
	inGo := sources(t, "*.go")
	inJavaScript := regexp.MustCompile(`(?m)^const changing = .*$`).ReplaceAllString(
		sources(t, "js/*.mjs"), "")
	var noneInGo, noneInJavaScript []wire.Verb
	for _, verb := range wire.Verbs() {
		constant := `(?i)\bwire\.` + strings.ReplaceAll(string(verb), ".", "") + `\b`
		if !regexp.MustCompile(constant).MatchString(inGo) {
			noneInGo = append(noneInGo, verb)
		}
		if !strings.Contains(inJavaScript, `"`+string(verb)+`"`) {
			noneInJavaScript = append(noneInJavaScript, verb)
		}
	}
	require.ElementsMatch(t, byRequest, noneInGo)
	require.ElementsMatch(t, append([]wire.Verb{wire.RunRetry}, byRequest...), noneInJavaScript)
}

// sources returns what the files of a pattern say, without those of tests.
func sources(t *testing.T, pattern string) string {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(source)
	}
	return all.String()
}
