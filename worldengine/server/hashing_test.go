package server

import (
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// However many logins come at once, few wait for a hash; the others are refused without one, and a
// user whose password was right before is let in.
func TestFewLoginsWaitForAHash(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), bcrypt.MinCost)
	require.NoError(t, err)
	user := &natsserver.User{Username: "a", Password: string(hash)}
	p := newPasswords()
	require.True(t, p.right("127.0.0.1", user, "right"))
	p.hashing.Lock()
	waiting := make(chan bool, maxHashing)
	for range maxHashing {
		go func() { waiting <- p.right("127.0.0.2", user, "wrong") }()
	}
	require.Eventually(t, func() bool { return p.waiting.Load() == maxHashing }, 20*time.Second,
		time.Millisecond)
	require.False(t, p.right("127.0.0.3", user, "wrong"), "refused at once")
	require.True(t, p.right("127.0.0.4", user, "right"), "known")
	p.hashing.Unlock()
	for range maxHashing {
		require.False(t, <-waiting)
	}
	require.Zero(t, p.waiting.Load())
}
