//go:build browser

package console_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/server"
)

// An agent in a page of another origin reaches the server if its origin is allowed, and only then.
func TestAgentInAPageOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	bundle := filepath.Join(t.TempDir(), "client.js")
	modules, err := filepath.Abs("web/node_modules")
	require.NoError(t, err)
	build := exec.CommandContext(t.Context(), "go", "tool", "esbuild", "../client/js/index.mjs",
		"--bundle", "--format=esm", "--platform=browser", "--log-level=warning", "--outfile="+bundle)
	build.Env = append(os.Environ(), "NODE_PATH="+modules)
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))

	var servers string
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/client.js" {
			w.Header().Set("Content-Type", "text/javascript")
			http.ServeFile(w, r, bundle)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><script type="module">
import { connect, makeHandoff } from "./client.js";
try {
  const engine = await connect({ servers: "` + servers + `", timeout: 5000 });
  const town = await engine.town("` + threatened + `");
  const { result } = await engine.send(await makeHandoff(town, {
    type: "TOWNSFOLK_TALK", args: { talkType: "casual" }, actorId: "a page", reason: "They are sad." }));
  document.body.textContent = "the status is " + result.status;
} catch (error) {
  document.body.textContent = "the error is " + error.code;
}
</script>`))
	}))
	t.Cleanup(page.Close)
	for allowed, shows := range map[string]string{
		page.URL:                  "the status is executed",
		"https://another.example": "the error is CONNECTION",
	} {
		w := serve(t, func(c *server.Config) { c.WebSocketOrigins = []string{allowed} })
		servers = strings.Replace(w.srv.HTTP(), "http://", "ws://", 1) + "/nats"
		b := open(t, "about:blank")
		b.mayBeAway()
		b.do(chromedp.Navigate(page.URL))
		b.sees(shows)
	}
}
