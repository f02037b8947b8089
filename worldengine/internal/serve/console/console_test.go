package console_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/serve/console"
)

func get(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	handler, err := console.Handler(console.Config{World: "main", SignIn: true})
	require.NoError(t, err)
	request := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer.Result()
}

func body(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

func TestHandlerServesThePage(t *testing.T) {
	t.Parallel()
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/app.js": "text/javascript; charset=utf-8",
		"/app.css":  "text/css; charset=utf-8",
		"/icon.svg": "image/svg+xml", "/config.json": "application/json",
	} {
		plain := get(t, path)
		require.Equal(t, []any{200, kind},
			[]any{plain.StatusCode, plain.Header.Get("Content-Type")}, path)
		packed := get(t, path, "Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", packed.Header.Get("Content-Encoding"))
		unpacked, err := gzip.NewReader(packed.Body)
		require.NoError(t, err)
		require.Equal(t, body(t, plain.Body), body(t, unpacked), path)
		same := get(t, path, "If-None-Match", plain.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, same.StatusCode)
	}
	require.JSONEq(t, `{"world": "main", "signIn": true, "sessions": false}`, body(t, get(t, "/config.json").Body))
	require.Equal(t, http.StatusNotFound, get(t, "/dist/app.js").StatusCode)
}

// The server's policy forbids inline scripts and styles, so the page has none; and it works below
// any path.
func TestPageHasNothingInlineAndNoAbsolutePaths(t *testing.T) {
	t.Parallel()
	page := body(t, get(t, "/").Body)
	for _, forbidden := range []string{"<style", "style=", "onclick", `="/`, "http:", "https:"} {
		require.NotContains(t, page, forbidden)
	}
	require.Equal(t, 1, strings.Count(page, "<script"))
	files, err := os.ReadDir("dist")
	require.NoError(t, err)
	scripts := 0
	for _, file := range files {
		if strings.HasSuffix(file.Name(), ".js") {
			require.NotContains(t, body(t, get(t, "/"+file.Name()).Body), "eval(", file.Name())
			scripts++
		}
	}
	require.Positive(t, scripts)
}

// imported are the files that a module needs before it runs.
var imported = regexp.MustCompile(`(?:from|import)"\./([A-Za-z0-9]+\.js)"`)

// A browser loads little before it shows something; other pages load later.
func TestTheFirstLoadIsSmall(t *testing.T) {
	t.Parallel()
	const maxScript, most = 50_000, 56 << 10
	size := func(path string) int {
		return len(body(t, get(t, path, "Accept-Encoding", "gzip").Body))
	}
	app := body(t, get(t, "/app.js").Body)
	script := size("/app.js")
	needed := imported.FindAllStringSubmatch(app, -1)
	require.NotEmpty(t, needed)
	for _, file := range needed {
		script += size("/" + file[1])
		require.Contains(t, body(t, get(t, "/").Body),
			`<link rel="modulepreload" href="`+file[1]+`">`)
	}
	require.LessOrEqual(t, script, maxScript)
	require.Less(t, script+size("/app.css"), most)
	require.Equal(t, http.StatusOK, get(t, "/"+later(t)).StatusCode)
}

// All that the page ever loads stays small too.
func TestTheBundleIsSmall(t *testing.T) {
	t.Parallel()
	const most = 200_000
	files, err := os.ReadDir("dist")
	require.NoError(t, err)
	size := 0
	for _, file := range files {
		size += len(body(t, get(t, "/"+file.Name(), "Accept-Encoding", "gzip").Body))
	}
	require.Less(t, size, most)
}

// later returns the file of the pages that are loaded behind the first one.
func later(t *testing.T) string {
	t.Helper()
	app := body(t, get(t, "/app.js").Body)
	for _, file := range imported.FindAllStringSubmatch(app, -1) {
		app += body(t, get(t, "/"+file[1]).Body)
	}
	found := regexp.MustCompile(`import\("\./([A-Za-z0-9]+\.js)"\)`).FindAllStringSubmatch(app, -1)
	require.Len(t, found, 1)
	return found[0][1]
}

// The page of a run explains each kind of precondition.
func TestEveryKindOfPreconditionIsCompared(t *testing.T) {
	t.Parallel()
	declared, err := os.ReadFile("../../../../handoff/proposal.go")
	require.NoError(t, err)
	compared, err := os.ReadFile("web/src/preconditions.js")
	require.NoError(t, err)
	kinds := kindConstant.FindAllStringSubmatch(string(declared), -1)
	require.Greater(t, len(kinds), 10)
	for _, kind := range kinds {
		if kind[1] != string(handoff.Approval) { // no proposal may have it
			require.Contains(t, string(compared), "\n  "+kind[1]+": (p", kind[1])
		}
	}
}

// The page of a run in doubt says what to do: it knows the reasons that leave a command in doubt.
func TestEveryReasonInDoubtIsKnown(t *testing.T) {
	t.Parallel()
	declared, err := os.ReadFile("../../core/apply/reasons.go")
	require.NoError(t, err)
	rows, err := os.ReadFile("web/src/rows.js")
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(rows), "export const inDoubt = [")
	list, _, _ = strings.Cut(list, "]")
	reasons := reasonConstant.FindAllStringSubmatch(string(declared), -1)
	require.NotEmpty(t, reasons)
	for _, reason := range reasons {
		require.Equal(t, apply.MayBeApplied(reason[1]), strings.Contains(list, `"`+reason[1]+`"`), reason[1])
	}
}

var reasonConstant = regexp.MustCompile(`handoff.ReasonCode = "([A-Z_]+)"`)

var kindConstant = regexp.MustCompile(`PreconditionKind += "([a-z_]+)"`)
