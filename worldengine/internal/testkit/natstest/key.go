package natstest

import (
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
)

// UserKey returns a new NKey of a user: its public key, and its seed.
func UserKey(t testing.TB) (public string, seed []byte) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err = pair.PublicKey()
	require.NoError(t, err)
	seed, err = pair.Seed()
	require.NoError(t, err)
	return public, seed
}
