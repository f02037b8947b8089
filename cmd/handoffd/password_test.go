package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// What is printed is a password and its hash, as an access file wants it.
func TestPassword(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"password"}, &out, &errs), "%s", &errs)
	words := strings.Fields(out.String())
	require.Len(t, words, 4)
	require.NoError(t, bcrypt.CompareHashAndPassword([]byte(words[3]), []byte(words[1])))
	file := accessFile(t, `{"name": "a", "role": "agent", "passwordHash": "`+words[3]+`"}`)
	out.Reset()
	require.Zero(t, run(t.Context(), []string{"permissions", "--access", file}, &out, &errs), "%s",
		&errs)
	require.Contains(t, out.String(), words[3])
	require.NotContains(t, out.String(), words[1])
}
