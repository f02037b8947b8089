package server

import (
	"fmt"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// hashed is a user with a hash; cost 4 is the least that bcrypt has.
func hashed(t testing.TB, name, password string) *natsserver.User {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return &natsserver.User{Username: name, Password: string(hash)}
}

// clocked has a clock that only the test moves.
func clocked() (*passwords, *time.Time) {
	p, now := newPasswords(), time.Unix(1_700_000_000, 0)
	p.now = func() time.Time { return now }
	return p, &now
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	p, _ := clocked()
	plain := &natsserver.User{Username: "plain", Password: "correct horse"}
	for _, user := range []*natsserver.User{plain, hashed(t, "hashed", "correct horse")} {
		require.True(t, p.right("a", user, "correct horse"))
		require.True(t, p.right("a", user, "correct horse"), "again")
		require.False(t, p.right("a", user, "battery staple"))
		require.False(t, p.right("a", user, ""))
	}
	other := hashed(t, "other", "another one")
	require.False(t, p.right("a", other, "correct horse"),
		"what is right for one user is not for another")
}

// Who was wrong too often is refused for a pause that grows and ends, also with the right password;
// the same user elsewhere, another user there, and one whose password was right before are not.
func TestWrongPasswordsAreBounded(t *testing.T) {
	t.Parallel()
	p, _ := clocked()
	victim, neighbour := hashed(t, "victim", "the victim's"),
		hashed(t, "neighbour", "the neighbour's")
	settled := hashed(t, "settled", "the settled's")
	require.True(t, p.right("bad", settled, "the settled's"))
	for range freeOfName {
		require.False(t, p.right("bad", victim, "guess"))
	}
	require.False(t, p.right("bad", victim, "the victim's"), "refused without looking")
	require.True(t, p.right("bad", neighbour, "the neighbour's"))
	require.True(t, p.right("good", victim, "the victim's"))

	p, now := clocked()
	pause := firstPause
	for i := range freeOfName + 10 {
		require.False(t, p.right("bad", victim, "guess"))
		if i >= freeOfName-1 {
			*now = now.Add(pause - 1)
			require.False(t, p.mayTry("bad", "victim"), "%d", i)
			*now = now.Add(1)
			require.True(t, p.mayTry("bad", "victim"), "%d", i)
			pause = min(2*pause, longestPause)
		}
	}
	require.True(t, p.right("bad", victim, "the victim's"), "after the pause")
}

// An address that tries many names is bounded too, and so is what is remembered of all.
func TestWrongPasswordsOfAnAddress(t *testing.T) {
	t.Parallel()
	p, _ := clocked()
	for i := range freeOfAddress {
		require.True(t, p.mayTry("bad", fmt.Sprint(i)))
		p.tried("bad", fmt.Sprint(i), false)
	}
	require.False(t, p.mayTry("bad", "new"))
	require.True(t, p.mayTry("good", "new"))
	for i := range 3 * mostFailing {
		p.tried(fmt.Sprint("address ", i), "x", false)
		require.LessOrEqual(t, len(p.failing), mostFailing)
	}
}
