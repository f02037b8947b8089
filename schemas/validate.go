package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// base is what the $id of every document starts with. Nothing is ever fetched from there.
const base = "https://worldengine.example/schemas/"

// rules holds the root of every schema, ready for checking. It panics when a document is not a
// schema that this package can check, which the tests rule out.
var rules = sync.OnceValue(func() map[Name]*rule {
	c := newCompiler()
	b := builder{}
	out := make(map[Name]*rule, len(sources))
	for n := range sources {
		out[n] = b.rule(c.MustCompile(location(n)))
	}
	return out
})

// Validate checks tree, which is as Decode returns it, against the schema n. It returns nil, a
// *ValidationError with CodeSchemaValidation and at most 50 violations, or ErrUnknownSchema. It
// does not change the tree, and it takes time linear in its size. A Go value of a type that Decode
// does not produce is a violation wherever the schema asks for a type.
func Validate(n Name, tree any) error {
	r, ok := rules()[n]
	if !ok {
		return unknown(n)
	}
	rep := newReport()
	r.check(&rep, tree)
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
	tree, err := Decode(data, lim)
	if ve, ok := errors.AsType[*ValidationError](err); ok {
		ve.Schema = n
		return nil, ve
	}
	if err := Validate(n, tree); err != nil {
		return nil, err
	}
	return tree, nil
}

func location(n Name) string { return base + string(n) + suffix }

// newCompiler returns a compiler that knows the embedded documents and loads no others.
func newCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.LoadURL = func(url string) (io.ReadCloser, error) {
		return nil, fmt.Errorf("schemas: %s is not embedded", url)
	}
	for n, doc := range sources {
		if err := c.AddResource(location(n), bytes.NewReader(doc)); err != nil {
			panic(err)
		}
	}
	return c
}
