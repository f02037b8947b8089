package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vectors returns the path of a file of the contract's vectors.
func vectors(name string) string { return filepath.Join("..", "..", "testdata", "vectors", name) }

// documents is what verify prints with -o json.
type documents struct {
	Valid     bool              `json:"valid"`
	Documents []checkedDocument `json:"documents"`
}

func TestVerify_Vectors(t *testing.T) {
	c := offline(t)
	for _, name := range []string{"handoffs.valid.json", "results.json", "results.revision-1.json",
		"snapshots.json"} {
		found := decode[documents](t, c.ok("verify", vectors(name), "-o", "json"))
		assert.True(t, found.Valid)
		assert.NotEmpty(t, found.Documents)
		assert.NotContains(t, c.ok("verify", vectors(name)), "invalid")
	}
}

func TestVerify_InvalidVectors(t *testing.T) {
	c := offline(t)
	text := c.run("verify", vectors("handoffs.invalid.json"))
	assert.Regexp(t, `^handoffctl: invalid documents: (\d+) of \d+\n$`, text.err)
	assert.NotRegexp(t, `(?m)^valid`, text.out)
	got := c.run("verify", vectors("handoffs.invalid.json"), "-o", "json")
	assert.Equal(t, exitFailed, got.status)
	found := decode[documents](t, got.out)
	require.NotEmpty(t, found.Documents)
	for _, document := range found.Documents {
		assert.False(t, document.Valid, document.Name)
		assert.NotEmpty(t, document.Violations, document.Name)
	}
}

func TestVerify_TamperedResult(t *testing.T) {
	c := online(t)
	sent := c.pipe(c.handoff(), "send", "-", "-o", "json").out
	got := c.pipe(sent, "verify", "-")
	assert.Equal(t, exitOK, got.status, "what send prints is understood")
	assert.Regexp(t,
		`^valid execution-result.v1 /result\n  handoffId \S+\n  resultId result_[0-9a-f]{64}\n`, got.out)

	got = c.pipe(strings.Replace(sent, "EXECUTED", "LUCKY", 1), "verify", "-")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "  /resultId: must be the hash of ")
}

func TestSchema_Names(t *testing.T) {
	c := offline(t)
	names := strings.Fields(c.ok("schema"))
	assert.Contains(t, names, "execution-handoff.v1")
	assert.Equal(t, names, decode[[]string](t, c.ok("schema", "-o", "json")))
	for _, name := range names {
		assert.Equal(t, name, decode[map[string]any](t, c.ok("schema", name))["title"])
	}
}
