package access

import (
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/secret"
	"worldengine/worldengine/wire"
)

// User is a user who may connect, as an access file has it. Exactly one of NKey, PasswordHash and
// Password is set, or none if there are Tokens.
type User struct {
	// Name is the user name, and part of the user's inbox; 1 to 64 of A-Z a-z 0-9 _ -.
	Name string    `json:"name"`
	Role wire.Role `json:"role"`
	// Worlds are the names of the worlds that the user may use, or their beginnings with "*" at the
	// end; empty for all.
	Worlds []string `json:"worlds"`
	// NKey is the public key of a user without a password.
	NKey string `json:"nkey"`
	// PasswordHash is the bcrypt hash of the password, and Password the password itself, from the
	// variable PasswordEnv or the file PasswordFile.
	PasswordHash secret.Text `json:"passwordHash"`
	Password     secret.Text `json:"-"`
	PasswordEnv  string      `json:"passwordEnv"`
	PasswordFile string      `json:"passwordFile"`
	// Tokens are the hashes of the user's tokens (HashToken), with which hosts of language models sign in
	// over HTTP. They are no credentials for NATS.
	Tokens []secret.Text `json:"tokens"`
	// Towns are the ids of the towns that the user may act on; empty for all.
	Towns []string `json:"towns"`
	// Actors are the actorIds that the user may speak for; empty for all.
	Actors []string `json:"actors"`
	// Read are the ids of the towns that the user may read; empty for all.
	Read []string `json:"read"`
}

// OnlyTokens reports whether the user cannot sign in at NATS.
func (u *User) OnlyTokens() bool {
	return len(u.Tokens) > 0 && u.NKey == "" && u.PasswordHash+u.Password == "" && u.PasswordEnv+u.PasswordFile == ""
}

// ID is how NATS names the user of a connection: the NKey if there is one, or else the name.
func (u *User) ID() string {
	if u.NKey != "" {
		return u.NKey
	}
	return u.Name
}

// InboxPrefix returns how the user's inboxes begin, so that no other user reads its replies.
// Clients have to set it: NATS_INBOX_PREFIX, nats.CustomInboxPrefix.
func (u *User) InboxPrefix() string { return layout.InboxPrefix(u.Name) }
