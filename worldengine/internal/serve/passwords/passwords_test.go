package passwords

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// hashed is a user with a hash; cost 4 is the least that bcrypt has.
func hashed(t testing.TB, name, password string) User {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return User{Name: name, Stored: string(hash)}
}

func TestChecker_Right(t *testing.T) {
	t.Parallel()
	p := New()
	plain := User{Name: "plain", Stored: "correct horse"}
	for _, user := range []User{plain, hashed(t, "hashed", "correct horse")} {
		require.True(t, p.Right("a", user, "correct horse"))
		require.True(t, p.Right("a", user, "correct horse"), "again")
		require.False(t, p.Right("a", user, "battery staple"))
		require.False(t, p.Right("a", user, ""))
	}
	require.False(t, p.Right("a", hashed(t, "other", "another one"), "correct horse"),
		"the right password of another user")
}

// A name with too many wrong passwords from an address is refused there for a pause that grows and
// ends, also with the right password; the same user elsewhere, another user there, and one whose
// password was right before are not.
func TestChecker_WrongOfAName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New()
		victim, neighbour := hashed(t, "victim", "the victim's"), hashed(t, "neighbour", "the neighbour's")
		settled := []User{hashed(t, "hashed", "mine"), {Name: "plain", Stored: "mine"}}
		for _, user := range settled {
			require.True(t, p.Right("bad", user, "mine"))
		}
		for range freeOfName {
			for _, user := range append(settled, victim) {
				require.False(t, p.Right("bad", user, "guess"))
			}
		}
		require.False(t, p.Right("bad", victim, "the victim's"), "refused without looking")
		require.True(t, p.Right("bad", neighbour, "the neighbour's"))
		require.True(t, p.Right("good", hashed(t, "victim", "the victim's"), "the victim's"))
		for _, user := range settled {
			require.True(t, p.Right("bad", user, "mine"), user.Name)
		}

		p = New()
		pause := minInterval
		for i := range freeOfName + 10 {
			require.False(t, p.Right("bad", victim, "guess"))
			if i >= freeOfName-1 {
				time.Sleep(pause - 1)
				require.False(t, mayTry(p, "bad", "victim"), "%d", i)
				time.Sleep(time.Nanosecond)
				require.True(t, mayTry(p, "bad", "victim"), "%d", i)
				pause = min(2*pause, maxInterval)
			}
		}
		require.True(t, p.Right("bad", victim, "the victim's"), "after the pause")
	})
}

func mayTry(p *Checker, address, name string) bool {
	_, may := p.lookUp(address, name, [32]byte{})
	return may
}

// An address that tries many names is bounded too.
func TestChecker_WrongOfAnAddress(t *testing.T) {
	t.Parallel()
	p := New()
	for i := range freeOfAddress {
		require.True(t, mayTry(p, "bad", fmt.Sprint(i)))
		p.tried("bad", fmt.Sprint(i), [32]byte{}, false)
	}
	require.False(t, mayTry(p, "bad", "new"))
	require.True(t, mayTry(p, "good", "new"))
}

// However many logins come at once, few wait for a hash; the others are refused without one, and a
// user whose password was right before is let in.
func TestChecker_FewWaitForAHash(t *testing.T) {
	t.Parallel()
	user, p := hashed(t, "a", "right"), New()
	require.True(t, p.Right("127.0.0.1", user, "right"))
	p.hashing.Lock()
	waiting := make(chan bool, maxHashing)
	for range maxHashing {
		go func() { waiting <- p.Right("127.0.0.2", user, "wrong") }()
	}
	require.Eventually(t, func() bool { return p.waiting.Load() == maxHashing }, time.Minute,
		time.Millisecond)
	require.False(t, p.Right("127.0.0.3", user, "wrong"), "refused at once")
	require.True(t, p.Right("127.0.0.4", user, "right"), "known")
	p.hashing.Unlock()
	for range maxHashing {
		require.False(t, <-waiting)
	}
	require.Zero(t, p.waiting.Load())
}
