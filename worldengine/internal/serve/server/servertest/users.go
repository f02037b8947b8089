// Package servertest starts worlds on servers in this process, with users, for tests.
package servertest

import (
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/wire"
)

// Password is the password of every user of the tests.
const Password = "a password of the tests"

// Person returns a user of a role, named as it, with changes.
func Person(role wire.Role, change ...func(*access.User)) access.User {
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
