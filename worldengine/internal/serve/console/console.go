// Package console is the page that handoffd serves: a client of the public protocol like any other,
// in a browser, which can do what its user may do and nothing else.
//
// The sources are in web; dist has what build.sh makes of them, so that Go alone builds a server.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:generate web/build.sh

//go:embed dist
var dist embed.FS

// Config is the page's configuration, which it reads before it connects.
type Config struct {
	// World is the name of the world that is served.
	World string `json:"world"`
	// SignIn is true if clients have to sign in.
	SignIn bool `json:"signIn"`
	// Sessions is true if a POST to /session answers {user, password} with the {token} of a session,
	// and a DELETE with that ends it.
	Sessions bool `json:"sessions"`
}

// file is a file of the page, in both forms that a browser may take.
type file struct {
	kind, tag   string
	plain, gzip []byte
}

// Handler answers with the page for /, with its files, and with config for /config.json.
func Handler(config Config) (http.Handler, error) {
	entries, err := dist.ReadDir("dist")
	if err != nil {
		return nil, err
	}
	files := map[string]*file{}
	for _, e := range entries {
		content, err := dist.ReadFile("dist/" + e.Name())
		if err != nil {
			return nil, err
		}
		files["/"+e.Name()] = newFile(e.Name(), content)
	}
	settings, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	files["/"], files["/config.json"] = files["/index.html"], newFile("config.json", settings)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := files[r.URL.Path]; f != nil {
			f.serve(w, r)
			return
		}
		http.NotFound(w, r)
	}), nil
}

func newFile(name string, content []byte) *file {
	var packed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = writer.Write(content) // a buffer takes everything
	_ = writer.Close()
	sum := sha256.Sum256(content)
	return &file{
		kind: kinds[path.Ext(name)], tag: `"` + hex.EncodeToString(sum[:8]) + `"`,
		plain: content, gzip: packed.Bytes(),
	}
}

// kinds are the media types of the files, which must not depend on the machine.
var kinds = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".json": "application/json", ".svg": "image/svg+xml",
}

// serve lets browsers keep the file, and ask each time whether it is still the same.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	content := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		content = f.gzip
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}
