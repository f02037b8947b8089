package access

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/secret"
	"worldengine/worldengine/wire"
)

// A token is known by its hash, and no other text has one.
func TestHashToken(t *testing.T) {
	t.Parallel()
	token, hash := NewToken()
	other, _ := NewToken()
	require.NotEqual(t, token, other)
	require.Equal(t, hash, HashToken(token))
	require.Regexp(t, tokenHash, hash)
	for _, text := range []string{"", hash, token + "x", token[1:], strings.Repeat("a", len(token))} {
		require.Empty(t, HashToken(text), text)
	}
}

// A user with tokens alone is no user of a nats-server.
func TestWriteNATS_OnlyTokens(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	_, hash := NewToken()
	user := User{Name: "bot", Role: wire.Agent, Tokens: []secret.Text{secret.Text(hash)}}
	require.True(t, user.OnlyTokens())
	require.NoError(t, WriteNATS(&b, []string{"w"}, []User{user, {Name: "mara", Role: wire.Agent}}))
	require.Contains(t, b.String(), "mara")
	require.NotContains(t, b.String(), "bot")
	require.NotContains(t, b.String(), hash)
}
