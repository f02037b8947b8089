package main

import (
	"os"
	"path/filepath"
	"regexp"
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
	page, err := os.ReadFile("../../../docs/glossary.md")
	require.NoError(t, err)
	var words []string
	for _, entry := range regexp.MustCompile(`(?m)^- \*\*(.+)\*\*: (.+)$`).FindAllStringSubmatch(string(page), -1) {
		words = append(words, entry[1])
		require.Equal(t, 1, strings.Count(entry[2], "."), "%s: one sentence", entry[1])
		require.LessOrEqual(t, len(strings.Fields(entry[2])), 20, "%s: at most 20 words", entry[1])
	}
	require.Greater(t, len(words), 50)
	require.True(t, slices.IsSorted(words))
}
