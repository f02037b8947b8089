package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// base starts the $id of every document. Nothing is ever fetched from there.
const base = "https://worldengine.example/schemas/"

// rules prepares each schema when it is first used: most processes use a few of them, and all take
// 50 ms. It panics if a document is not a schema that this package can check; the tests prevent
// that.
var rules = newRules()

func newRules() map[Name]func() *rule {
	var mu sync.Mutex // guards c and b
	c, b := newCompiler(), builder{}
	out := make(map[Name]func() *rule, len(sources))
	for n := range sources {
		out[n] = sync.OnceValue(func() *rule {
			mu.Lock()
			defer mu.Unlock()
			return b.rule(c.MustCompile(location(n)))
		})
	}
	return out
}

// santhosh-tekuri/jsonschema compiles the embedded documents once, at the first use, checks them against their
// meta-schema and resolves their references; nothing is loaded from anywhere else. Validate walks the compiled schemas
// itself, because the library's own validator copies the member names of an object for every subschema, and words its
// errors for authors of schemas. A handoff takes 1.6 µs instead of 44; half a million violations, as many as 1 MiB may
// have, take 4 ms instead of 500. Tests compare the two validators, and limit the documents to the keywords that
// Validate knows.

// Validate checks a tree from Decode against the schema n. The error is a *ValidationError with
// CodeSchemaValidation and at most 50 violations, or ErrUnknownSchema. It does not change the tree,
// and takes time linear in its size. A Go value of a type that Decode does not produce violates
// every schema that names a type.
func Validate(n Name, tree any) error {
	ready, ok := rules[n]
	if !ok {
		return unknown(n)
	}
	rep := newReport()
	ready().check(&rep, tree)
	if rep.count == 0 {
		return nil
	}
	return Invalid(n, rep.violations()...)
}

// Parse is Decode and then Validate; the *ValidationError of either step names the schema n.
func Parse(n Name, data []byte, lim Limits) (any, error) {
	if _, ok := sources[n]; !ok {
		return nil, unknown(n)
	}
	tree, err := DecodeNamed(n, data, lim)
	if err != nil {
		return nil, err
	}
	if err := Validate(n, tree); err != nil {
		return nil, err
	}
	return tree, nil
}

// DecodeNamed is Decode with an error that names the schema n.
func DecodeNamed(n Name, data []byte, lim Limits) (any, error) {
	tree, err := Decode(data, lim)
	if invalid, ok := errors.AsType[*ValidationError](err); ok {
		invalid.Schema = n
		return nil, invalid
	}
	return tree, err
}

func location(n Name) string { return base + string(n) + suffix }

// newCompiler returns a compiler that knows the embedded documents and loads no others.
func newCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.LoadURL = func(url string) (io.ReadCloser, error) {
		name := strings.TrimSuffix(strings.TrimPrefix(url, base), suffix)
		doc, ok := sources[Name(name)]
		if !ok || url != location(Name(name)) {
			return nil, fmt.Errorf("schemas: %s is not embedded", url)
		}
		return io.NopCloser(bytes.NewReader(doc)), nil
	}
	return c
}
