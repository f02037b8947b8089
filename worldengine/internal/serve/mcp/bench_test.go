package mcp_test

import (
	"testing"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/serve/mcp"
)

// BenchmarkNew makes the tools of a session.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mcp.New(mcp.Config{Client: &client.Client{World: "main"}})
	}
}
