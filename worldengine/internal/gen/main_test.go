package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGenerate_TreeIsUpToDate(t *testing.T) {
	t.Parallel()
	for name, want := range generate("../../..") {
		got, err := os.ReadFile(filepath.Join("../../..", name))
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is stale: run go generate ./worldengine/internal/gen", name)
	}
}

func TestGlossary_SortedSentences(t *testing.T) {
	t.Parallel()
	require.True(t, slices.IsSortedFunc(glossary, func(a, b term) int { return strings.Compare(a.word, b.word) }))
	for _, entry := range glossary {
		require.Equal(t, 1, strings.Count(entry.meaning, "."), "%s: one sentence", entry.word)
		require.LessOrEqual(t, len(strings.Fields(entry.meaning)), 20, "%s: at most 20 words", entry.word)
	}
}
