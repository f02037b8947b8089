// Package mcptest has a language model for tests: the SDK's own client.
package mcptest

import (
	"context"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// Model is the SDK's client in a session with the tools, which ends with the test.
type Model struct {
	*sdk.ClientSession
	Updated chan string // the URIs of updated resources
	t       testing.TB
}

// Connect begins a session, in a version of the protocol, or "" for the newest.
func Connect(t testing.TB, transport sdk.Transport, version string) (*Model, error) {
	m := &Model{t: t, Updated: make(chan string, 100)}
	options := &sdk.ClientOptions{ResourceUpdatedHandler: func(
		_ context.Context, r *sdk.ResourceUpdatedNotificationRequest,
	) {
		m.Updated <- r.Params.URI
	}}
	var err error
	m.ClientSession, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(
		context.Background(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		t.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

// Call calls a tool, and returns the text of its answer and whether it is an error.
func (m *Model) Call(tool string, arguments map[string]any) (string, bool) {
	m.t.Helper()
	got, err := m.CallTool(m.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	require.NoError(m.t, err)
	require.Len(m.t, got.Content, 1)
	return got.Content[0].(*sdk.TextContent).Text, got.IsError
}

// Ok calls a tool that must not fail, and Fails one that must; both return its text.
func (m *Model) Ok(tool string, arguments map[string]any) string {
	m.t.Helper()
	text, failed := m.Call(tool, arguments)
	require.False(m.t, failed, text)
	return text
}

// Fails is described at Ok.
func (m *Model) Fails(tool string, arguments map[string]any) string {
	m.t.Helper()
	text, failed := m.Call(tool, arguments)
	require.True(m.t, failed, text)
	return text
}
