package embedded

import (
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// A session ends after a day, and the oldest one when a user has too many.
func TestSessions_Bounds(t *testing.T) {
	t.Parallel()
	now, user := time.Unix(0, 0), &natsserver.User{Username: "ada", Password: "x"}
	s := newSessions()
	s.now = func() time.Time { return now }
	first := s.create(user)
	require.True(t, isSessionToken(first))
	require.False(t, isSessionToken("console-session-"))
	now = now.Add(sessionTTL - time.Second)
	require.True(t, s.has(user, first))
	now = now.Add(time.Second)
	require.False(t, s.has(user, first))

	first = s.create(user)
	require.Len(t, s.open, 1, "the ended one is forgotten")
	other := s.create(&natsserver.User{Username: "ben", Password: "y"})
	for range sessionsOfUser - 1 {
		s.create(user)
	}
	require.True(t, s.has(user, first))
	last := s.create(user)
	require.False(t, s.has(user, first))
	require.True(t, s.has(user, last))
	require.Len(t, s.open, sessionsOfUser+1)
	s.end("no token")
	s.end(last)
	require.Len(t, s.open, sessionsOfUser)
	require.False(t, s.has(user, other))
}
