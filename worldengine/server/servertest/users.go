// Package servertest has the users of servers in tests, and a wait until an engine is idle.
package servertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
)

// Password is the password of every user of the tests.
const Password = "a password of the tests"

// Person returns a user of a role, named as it, with changes.
func Person(role access.Role, change ...func(*access.User)) access.User {
	u := access.User{Name: string(role), Role: role, Password: Password}
	for _, c := range change {
		c(&u)
	}
	return u
}

// WithUsers makes a server know users.
func WithUsers(users ...access.User) func(*server.Config) {
	return func(c *server.Config) { c.Access = &access.Config{Users: users} }
}

// Idle waits until an engine has nothing queued and nothing in hand. A client has its answer before
// the turn of its town is over; once the engine is idle, all of that turn has happened.
func Idle(t testing.TB, e *worldengine.Engine) {
	t.Helper()
	require.Eventually(t, func() bool {
		// An application that ends is queued before it is not counted any more.
		return e.Stats().Applying == 0 && e.Stats().Waiting == 0
	}, time.Minute, time.Millisecond)
}
