package schemastest

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// AsyncAPI is the document of schemas.AsyncAPI, as far as tests read it.
type AsyncAPI struct {
	Channels map[string]struct {
		Address  string
		Messages map[string]Reference
	}
	Operations map[string]struct {
		Action   string
		Channel  Reference
		Messages []Reference
		Reply    struct{ Messages []Reference }
	}
	Components struct{ Messages map[string]Message }

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	t        testing.TB
}

// Message is a message of an AsyncAPI document.
type Message struct {
	Summary  string
	Examples []Example
}

// Example is an example of a message.
type Example struct {
	Name    string
	Headers map[string]any
	Payload any
}

// Reference is a reference in an AsyncAPI document.
type Reference struct {
	Ref string `json:"$ref"`
}

// Name returns the last part of the reference.
func (r Reference) Name() string { return r.Ref[strings.LastIndexByte(r.Ref, '/')+1:] }

const asyncAPIURL = "https://worldengine.example/asyncapi.json"

// ReadAsyncAPI reads the document.
func ReadAsyncAPI(t testing.TB) *AsyncAPI {
	t.Helper()
	api := &AsyncAPI{compiler: jsonschema.NewCompiler(), t: t}
	require.NoError(t, json.Unmarshal([]byte(schemas.AsyncAPI()), api))
	api.compiler.Draft = jsonschema.Draft7 // AsyncAPI's schemas are a superset
	require.NoError(t, api.compiler.AddResource(asyncAPIURL, strings.NewReader(schemas.AsyncAPI())))
	return api
}

// Schema returns a schema of the components.
func (a *AsyncAPI) Schema(name string) *jsonschema.Schema { return a.compile("schemas", name) }

// Payload returns the schema of the payload of a message of the components.
func (a *AsyncAPI) Payload(message string) *jsonschema.Schema {
	return a.compile("messages", message, "payload")
}

// Headers returns the schema of the headers of a message of the components.
func (a *AsyncAPI) Headers(message string) *jsonschema.Schema {
	return a.compile("messages", message, "headers")
}

// compile is called by subscriptions too, and the compiler is not safe for concurrent use.
func (a *AsyncAPI) compile(tokens ...string) *jsonschema.Schema {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	schema, err := a.compiler.Compile(asyncAPIURL + "#/components/" + strings.Join(tokens, "/"))
	require.NoError(a.t, err)
	return schema
}
